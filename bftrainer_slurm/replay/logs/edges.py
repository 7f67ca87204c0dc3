"""Which part of a log can be trusted: at its edges, jobs that ran then are missing.

The run times of the log's own jobs show how much is missing.
"""

from __future__ import annotations

import math

import numpy as np

from bftrainer_slurm.replay.logs.jobs import JobTable

_MISSING = 0.01  # of the busy node time, at the edge of what is trusted
_MOST_CUT = 0.25  # of the log, at each end
_BINS = np.concatenate([[0.0], np.geomspace(1.0, 1e10, 401)])  # run times in seconds


def trusted(jobs: JobTable, last_submit_s: float) -> tuple[float, float]:
    """Return from when to when (Unix seconds) nearly all that ran is in the log.

    A log begins when its first job ends: ``sacct --starttime`` shows every job that ran then or
    later. Another log may lack jobs that had started before. So the beginning is cut off until
    such jobs hold only 1 % of the busy nodes, but at most a quarter of the log. The log ends with
    the last submission, or the last start if it has no submissions. If no job ran on after that,
    the log was picked by end times, and the same is cut off at this end.
    Raises ValueError if nothing is left.
    """
    begin_s = float(jobs.end_s.min(initial=math.inf))
    last_start_s = float(jobs.start_s.max(initial=-math.inf))
    end_s = last_submit_s if math.isfinite(last_submit_s) else last_start_s
    if not begin_s < end_s < math.inf:
        raise ValueError("no job came after its first one had ended")
    cut_s = min(_residual_s(jobs), _MOST_CUT * (end_s - begin_s))
    is_over = float(jobs.end_s.max()) <= end_s
    return begin_s + cut_s, end_s - (cut_s if is_over else 0.0)


def _residual_s(jobs: JobTable) -> float:
    """How long after a moment the jobs of that moment hold 1 % of what they held then.

    After x seconds they hold sum n max(T - x, 0) / sum n T of it (n nodes, run time T), as in
    a stream of jobs that goes on as it is.
    """
    ended = np.isfinite(jobs.end_s)
    run_s, nodes = (jobs.end_s - jobs.start_s)[ended], jobs.nodes[ended]
    of_length, _ = np.histogram(run_s, _BINS, weights=nodes)
    node_s_of_length, _ = np.histogram(run_s, _BINS, weights=nodes * run_s)
    longer, longer_node_s = (np.cumsum(one[::-1])[::-1] for one in (of_length, node_s_of_length))
    left = longer_node_s - _BINS[:-1] * longer
    if left[0] <= 0:
        return 0.0
    return float(_BINS[np.argmax(left <= _MISSING * left[0])])
