"""Which ordinary jobs had to preempt elements, on which nodes, and how long that took them.

``decide.available`` tries to prevent it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from bftrainer_slurm.controller.state.phases import Ended, Event
from bftrainer_slurm.model import Queue

_SOON_S = 60.0  # how soon a job starts on nodes taken for it, without passes
_PASSES = 2.5  # or within so many intervals of backfill: it takes nodes in one pass, for the next
# Slurm ends a reclaimed element first, and only then gives the node to the job that needs it; until
# then the node looks idle, and the job may not be seen to wait: it was submitted since, say.
_AT_LEAST_S = 5.0
_CLOCK_S = 1.0  # Slurm tells starts in whole seconds
LATE_S = 10.0  # an element is gone much sooner: a job that waits longer has missed a pass


@dataclass(frozen=True, slots=True)
class Preemption:
    """An ordinary job that started at ``time_s`` (Unix seconds) on nodes of ``elements``.

    ``delay_s`` is how long it had to wait after they were told to leave, to within a second.
    """

    time_s: float
    elements: int
    delay_s: float


class Preemptions:
    """Follows from look to look which jobs get the nodes of preempted elements."""

    def __init__(self) -> None:
        # Nodes on which nobody has started yet: since when a job that waits has had them taken, and
        # until when they are left to a job that nobody has seen (Unix seconds).
        self._taken: dict[str, float] = {}
        self._left: dict[str, float] = {}

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that were taken for a job, and on which no job has started yet."""
        return frozenset(self._taken) | frozenset(self._left)

    def look(
        self, events: Iterable[Event], queue: Queue, backfill_s: float | None, now_s: float
    ) -> list[Preemption]:
        """Return the jobs that have started where elements were; ``backfill_s`` None: no passes.

        An element that ends while no job waits was not preempted.
        """
        within_s = max(_SOON_S, _PASSES * (backfill_s or 0.0))
        for event in events:
            if isinstance(event, Ended) and event.how == "reclaimed":
                self._taken[event.node] = event.began_s
                self._left[event.node] = now_s + _AT_LEAST_S
            else:
                self._taken.pop(event.node, None)
                self._left.pop(event.node, None)
        found = [
            Preemption(run.start_s, len(taken), max(0.0, run.start_s - min(taken.values())))
            for run in (queue.ordinary_runs if self._taken else ())
            if (taken := self._taken_for(run.nodes, run.start_s))
        ]
        waits = bool(queue.asking)
        self._taken = {
            node: since_s
            for node, since_s in self._taken.items()
            if waits and node not in queue.ordinary_nodes and now_s - since_s < within_s
        }
        self._left = {
            node: until_s
            for node, until_s in self._left.items()
            if node not in queue.ordinary_nodes and now_s < until_s
        }
        return found

    def _taken_for(self, nodes: Iterable[str], start_s: float) -> dict[str, float]:
        known = {node: self._taken[node] for node in nodes if node in self._taken}
        return {node: at_s for node, at_s in known.items() if start_s > at_s - _CLOCK_S}


class Starts:
    """Follows from look to look how many ordinary jobs start, also those that end at once."""

    def __init__(self) -> None:
        self._known: frozenset[tuple[int, float]] | None = None

    def look(self, queue: Queue) -> int:
        """Return how many have started since the last look; the first one tells nothing."""
        known, self._known = self._known, queue.ordinary_starts
        return 0 if known is None else len(self._known - known)


def summary(preemptions: Iterable[Preemption]) -> dict[str, float | int | None]:
    """Return the summary that admins see; delays are in seconds, None if there were none."""
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
