"""How many nodes are worth keeping idle for ordinary jobs that have not been submitted yet.

It is learnt from recent jobs; ``decide.available`` chooses the nodes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from bftrainer_slurm.model import OrdinaryRun

# Delay in seconds of a job that the main scheduler starts if it has to preempt
# (docs/bench-impact.md).
PREEMPTION_S = 0.3
_AT_ONCE_S = 5.0  # from submission to start by the main scheduler; batch_sched_delay is 3 s
_REMEMBERED_S = 24 * 3600.0
_HOUR_S = 3600.0


class Arrivals:
    """The jobs of the last day that the main scheduler started at once, by their nodes.

    It preempts for such a job if too few nodes are idle: trainers cannot leave ahead of it.
    """

    def __init__(self, now_s: float) -> None:
        self._began_s = now_s
        self._running: frozenset[OrdinaryRun] | None = None
        self._hours: defaultdict[float, Counter[int]] = defaultdict(Counter)  # by their begin

    def look(self, runs: Iterable[OrdinaryRun], now_s: float) -> None:
        """Take in the running ordinary jobs; those that have come since the last look count."""
        before, self._running = self._running, frozenset(runs)
        came = Counter(
            len(run.nodes)
            for run in self._running.difference(self._running if before is None else before)
            if run.start_s - run.submit_s <= _AT_ONCE_S
        )
        self._hours[now_s // _HOUR_S * _HOUR_S] += came
        for hour_s in [one for one in self._hours if one < now_s - _REMEMBERED_S]:
            del self._hours[hour_s]

    def worth_keeping(self, delay_worth: float, now_s: float) -> int:
        """Return how many idle nodes save more than they cost.

        ``delay_worth`` is how many node-seconds a second of an ordinary job's delay is worth. Each
        kept node costs trainers a node-second per second. The kept nodes save a preemption for
        every job that needs no more nodes than these. If less than an hour was observed, its jobs
        count as those of an hour.
        """
        known_s = max(_HOUR_S, min(_REMEMBERED_S, now_s - self._began_s))
        came = sum(self._hours.values(), Counter[int]())
        best, best_gain, spared = 0, 0.0, 0
        for nodes, jobs in sorted(came.items()):
            spared += jobs
            gain = delay_worth * PREEMPTION_S * spared / known_s - nodes
            if gain > best_gain:
                best, best_gain = nodes, gain
        return best
