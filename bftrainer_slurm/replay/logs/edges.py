"""Where a log can be trusted: at its edges, jobs are missing that ran then.

What is missing is judged by how long the log's own jobs run.
"""

from __future__ import annotations

import math
from array import array

import numpy as np

_MISSING = 0.01  # of the busy node time, at the edge of what is trusted
_MOST_CUT = 0.25  # of the log, at each end
_BUFFERED = 1_000_000  # jobs
_BINS = np.concatenate([[0.0], np.geomspace(1.0, 1e10, 401)])  # run times in seconds


class Edges:
    """Collects, in bounded memory, what tells where a log begins and ends."""

    def __init__(self) -> None:
        self._start_s, self._end_s, self._held = array("d"), array("d"), array("d")
        self._nodes = np.zeros(len(_BINS) - 1)
        self._node_s = np.zeros(len(_BINS) - 1)
        self._first_end_s = math.inf
        self._last_start_s = -math.inf
        self._last_end_s = -math.inf

    def add(self, start_s: float, end_s: float, nodes: float) -> None:
        """Take in a job (an end may be infinite)."""
        self._start_s.append(start_s)
        self._end_s.append(end_s)
        self._held.append(nodes)
        if len(self._held) >= _BUFFERED:
            self._digest()

    def _digest(self) -> None:
        start_s, end_s = np.array(self._start_s), np.array(self._end_s)
        self._first_end_s = min(self._first_end_s, float(end_s.min(initial=math.inf)))
        self._last_start_s = max(self._last_start_s, float(start_s.max(initial=-math.inf)))
        self._last_end_s = max(self._last_end_s, float(end_s.max(initial=-math.inf)))
        ended = np.isfinite(end_s)
        run_s, nodes = (end_s - start_s)[ended], np.array(self._held)[ended]
        self._nodes += np.histogram(run_s, _BINS, weights=nodes)[0]
        self._node_s += np.histogram(run_s, _BINS, weights=nodes * run_s)[0]
        for column in (self._start_s, self._end_s, self._held):
            del column[:]

    def trusted(self, last_submit_s: float) -> tuple[float, float]:
        """Return from when to when (Unix seconds) nearly all that ran is in the log.

        A log begins where its first job ends: ``sacct --starttime`` shows every job that ran
        then or later. Another log may lack what had started before, so that as much is cut off
        as it takes until those hold 1 % of the busy nodes, but at most a quarter of the log.
        It ends with the last submission (the last start, where the log has none); where no job
        ran on after that, it was picked by end times, and the same is cut off at this end.
        Raises ValueError where nothing is left.
        """
        self._digest()
        begin_s = self._first_end_s
        end_s = last_submit_s if math.isfinite(last_submit_s) else self._last_start_s
        if not begin_s < end_s < math.inf:
            raise ValueError("its jobs do not overlap in time")
        cut_s = min(self._residual_s(), _MOST_CUT * (end_s - begin_s))
        return begin_s + cut_s, end_s - (cut_s if self._last_end_s <= end_s else 0.0)

    def _residual_s(self) -> float:
        """How long after a moment the jobs of that moment hold 1 % of what they held then.

        After x seconds they hold sum n max(T - x, 0) / sum n T of it (n nodes, run time T), as in
        a stream of jobs that goes on as it is.
        """
        after_s = _BINS[:-1]
        longer_node_s = np.cumsum(self._node_s[::-1])[::-1]
        longer_nodes = np.cumsum(self._nodes[::-1])[::-1]
        left = longer_node_s - after_s * longer_nodes
        if left[0] <= 0:
            return 0.0
        return float(after_s[np.argmax(left <= _MISSING * left[0])])
