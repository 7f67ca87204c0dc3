"""Finds out which ordinary jobs start later because of elements, and how much later.

``decide.headroom`` tries to avoid it. Slurm does not say for which job it preempts, nor why a pass
leaves a job waiting. So a job counts once it has started: on nodes of which elements were preempted
while it waited, or on nodes on which a pass would have started it but for elements there.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.state.passes import Claims
from bftrainer_slurm.controller.state.phases import OCCUPIES, VACATES, Began, Ended, Event
from bftrainer_slurm.controller.state.statistics import Delay
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import OrdinaryRun, WaitingJob

_SOON_S = 60.0  # a job starts this soon after the preemption or the pass that did not start it ...
_PASSES = 2.5  # ... or within this many backfill intervals: one pass preempts, the next starts it
# Slurm first ends a reclaimed element, and only then gives the node to the job that needs it. Until
# then the node looks idle, and the last look may not show the job, for example if it is too new.
_AT_LEAST_S = 5.0
_CLOCK_S = 1.0  # Slurm gives starts in whole seconds
_LOOKS = 8  # to find the last one before a pass: some looks may come before one shows the pass


class _Taken(NamedTuple):
    """Elements that were preempted on a node, on which no job has started since (Unix seconds)."""

    since_s: float  # when the first one began to end; inf if no job waits
    until_s: float  # how long the node is kept for a job that no look has shown yet
    elements: int = 1


@dataclass(frozen=True, slots=True)
class _Look:
    """A look: what Slurm said, and the nodes of elements; true: one is leaving it."""

    at_s: float  # when Slurm had answered
    snapshot: Snapshot
    ours: Mapping[str, bool]

    def waiting(self, run: OrdinaryRun) -> WaitingJob | None:
        """Return the job, or its array, as it waited."""
        ids = (run.job_id, run.array)
        return next((job for job in self.snapshot.queue.asking if job.job_id in ids), None)

    def fits(self, job: WaitingJob, node: str) -> bool:
        """Whether ordinary jobs leave it room on a node."""
        room = self.snapshot.room.get(node)
        return room is not None and self.snapshot.fits(job, node, room)

    def in_the_way(self, job: WaitingJob, node: str) -> bool:
        """Whether elements do not leave it that room: Slurm starts nothing where one is ending."""
        shared = self.snapshot.shared.get(node)
        if node not in self.ours or self.ours[node] or shared is None:
            return node in self.ours
        return not self.snapshot.fits(job, node, shared.left)


class _Pass(NamedTuple):
    """A pass, and the looks before and after it."""

    began_s: float
    before: _Look
    after: _Look

    def missed(self, run: OrdinaryRun) -> bool:
        """Whether the job would have started in it where it has started now."""
        job = self.before.waiting(run)
        if job is None or self.after.waiting(run) is None:
            return False
        if not any(self.before.in_the_way(job, node) for node in run.nodes):
            return False
        claims = Claims(snapshot := self.before.snapshot)
        for other in snapshot.queue.waiting:
            if (-other.priority, other.job_id) < (-job.priority, job.job_id):
                claims.add(other, other.expected_nodes)
        in_time, looks = claims.in_time(job), (self.before, self.after)
        return all(
            in_time(node) and all(one.fits(job, node) for one in looks) for node in run.nodes
        )


class Delays:
    """Tracks preemptions and passes from look to look."""

    def __init__(self) -> None:
        self._taken: dict[str, _Taken] = {}
        self._looks = deque[_Look](maxlen=_LOOKS)
        self._passes: list[_Pass] = []

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that were taken for a job, and on which no job has started yet."""
        return frozenset(self._taken)

    def look(
        self,
        events: Iterable[Event],
        snapshot: Snapshot,
        views: Sequence[TrainerView],
        started: Set[tuple[int, float]],
        now_s: float,
    ) -> list[Delay]:
        """Return those of the jobs ``started`` since the last look that elements have delayed.

        An element that ends while no job waits was not preempted.
        """
        waits = bool(snapshot.queue.asking)
        within_s = max(_SOON_S, _PASSES * (snapshot.configuration.backfill_s or 0.0))
        self._note_preemptions(events, now_s)
        runs = snapshot.queue.ordinary_runs if started and (self._taken or self._passes) else ()
        new = [run for run in runs if (run.job_id, run.start_s) in started]
        found = [delay for run in new for delay in self._delay(run)]
        for node, taken in list(self._taken.items()):
            counts = waits and -math.inf < now_s - taken.since_s < within_s
            self._taken[node] = taken._replace(since_s=taken.since_s if counts else math.inf)
            if not (counts or now_s < taken.until_s):
                del self._taken[node]
        self._passes = [one for one in self._passes if 0 <= now_s - one.began_s < within_s]
        if waits:
            self._note_pass(snapshot, views, now_s)
        else:
            self._looks.clear()
        return found

    def _note_preemptions(self, events: Iterable[Event], now_s: float) -> None:
        for event in events:
            if isinstance(event, Ended) and event.how == "reclaimed":
                since_s, until_s = event.began_s, now_s + _AT_LEAST_S
                before = self._taken.get(event.node, _Taken(math.inf, until_s, 0))
                since_s = min(since_s, before.since_s)
                self._taken[event.node] = _Taken(since_s, until_s, before.elements + 1)
            elif isinstance(event, Began) and not event.gpus:
                self._taken.pop(event.node, None)

    def _note_pass(self, snapshot: Snapshot, views: Sequence[TrainerView], now_s: float) -> None:
        ours: dict[str, bool] = {}
        for view in views:
            for _, record in view.within(*OCCUPIES):
                node = record.node or ""
                ours[node] = ours.get(node, False) or record.phase in VACATES
        look, last = _Look(now_s, snapshot, ours), snapshot.last_pass
        before = [one for one in self._looks if last is not None and one.at_s < last.began_s]
        self._looks.append(look)
        if last is None or not before or last.active:
            return
        known = self._passes and self._passes[-1].began_s == last.began_s
        if not (known or last.stopped_early(snapshot.configuration.backfill_depth)):
            self._passes.append(_Pass(last.began_s, before[-1], look))

    def _delay(self, run: OrdinaryRun) -> Iterator[Delay]:
        """Yield how much later a job has started, if it has; its nodes are not taken any more."""
        taken = {
            node: one
            for node in run.nodes
            if (one := self._taken.get(node))
            and run.submit_s - _CLOCK_S <= one.since_s < run.start_s + _CLOCK_S
        }
        passes = (one.began_s for one in self._passes if one.missed(run))
        since_s = min([*(one.since_s for one in taken.values()), *passes], default=math.inf)
        if since_s < math.inf:
            elements = sum(one.elements for one in taken.values())
            yield Delay(run.start_s, elements, max(0.0, run.start_s - since_s))
        for node in taken:
            del self._taken[node]
