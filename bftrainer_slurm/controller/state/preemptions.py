"""What ordinary jobs felt of trainers: which of them started where Slurm first took an element.

Observed, not foreseen: how to spare jobs that is in ``decide.vacate``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from bftrainer_slurm.controller.state.element import Ended, Event
from bftrainer_slurm.model import Queue

_SOON_S = 60.0  # within which a job starts on what was taken for it, where there are no passes
_PASSES = 2.5  # or within so many intervals of backfill: it takes nodes in one pass, for the next
_CLOCK_S = 1.0  # Slurm tells starts in whole seconds
LATE_S = 10.0  # an element is gone much sooner: who waits longer has missed a pass


@dataclass(frozen=True, slots=True)
class Preemption:
    """An ordinary job that started at ``time_s`` (Unix seconds) on nodes of ``elements``.

    ``delay_s`` is how long it had to wait after they were told to go, to within a second.
    """

    time_s: float
    elements: int
    delay_s: float


class Preemptions:
    """Follows from look to look who gets the nodes of preempted elements.

    ``taken`` are those on which nobody has started yet, and since when (Unix seconds).
    """

    def __init__(self) -> None:
        self.taken: dict[str, float] = {}

    def look(
        self, events: Iterable[Event], queue: Queue, backfill_s: float | None, now_s: float
    ) -> list[Preemption]:
        """Return the jobs that have started where elements were; ``backfill_s`` None: no passes.

        An element that ends while no job waits has not ended for one.
        """
        within_s = max(_SOON_S, _PASSES * (backfill_s or 0.0))
        for event in events:
            if isinstance(event, Ended) and event.how == "reclaimed":
                self.taken[event.node] = event.began_s
            else:
                self.taken.pop(event.node, None)
        found = [
            Preemption(run.start_s, len(taken), max(0.0, run.start_s - min(taken.values())))
            for run in (queue.ordinary_runs if self.taken else ())
            if (taken := self._taken_for(run.nodes, run.start_s))
        ]
        waits = any(job.for_nodes for job in queue.waiting)
        self.taken = {
            node: since_s
            for node, since_s in self.taken.items()
            if waits and node not in queue.ordinary_nodes and now_s - since_s < within_s
        }
        return found

    def _taken_for(self, nodes: Iterable[str], start_s: float) -> dict[str, float]:
        known = {node: self.taken[node] for node in nodes if node in self.taken}
        return {node: at_s for node, at_s in known.items() if start_s > at_s - _CLOCK_S}


def summary(preemptions: Iterable[Preemption]) -> dict[str, float | int | None]:
    """Return what admins are shown of them; the delays are in seconds, None: there was none."""
    known = list(preemptions)
    seconds = [one.delay_s for one in known]
    return {
        "jobs": len(known),
        "elements": sum(one.elements for one in known),
        "late_jobs": sum(one > LATE_S for one in seconds),
        "delay_median_s": median(seconds) if seconds else None,
        "delay_max_s": max(seconds, default=None),
        "delay_sum_s": sum(seconds),
    }
