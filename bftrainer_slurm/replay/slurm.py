"""Slurm in memory: its rules for the elements of trainers, behind the controller's gateway.

``cluster`` adds the ordinary jobs of a log, and trainers that train. Tests of the controller add
users, admins and faults.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace

from bftrainer_slurm.model import (
    BackfillPass,
    Configuration,
    Element,
    ElementId,
    ElementState,
    Queue,
    Reservation,
    TimeLimit,
    Trainer,
    WaitingJob,
)

PARTITION = "bftrainer"
HELD, PENDING, DELAYED = ElementState.HELD, ElementState.PENDING, ElementState.DELAYED
RUNNING, ENDING = ElementState.RUNNING, ElementState.ENDING
FAILED, SUSPENDED = ElementState.FAILED, ElementState.SUSPENDED
_A_DAY = TimeLimit(24 * 60, 24 * 60)


@dataclass(slots=True, eq=False)
class Job:
    """One element as slurmctld has it. Times are Unix seconds.

    It may start on ``targets``; None: on any node. With a ``reason`` to wait it does not start.
    ``then`` is its state once its processes have ended; None: nobody ends them.
    """

    id: ElementId
    queued_s: float
    state: ElementState = HELD
    node: str | None = None
    targets: frozenset[str] | None = None
    limit: TimeLimit = _A_DAY
    start_s: float | None = None
    limit_end_s: float | None = None
    end_s: float | None = None
    exit_status: int | None = None
    then: ElementState | None = None
    reason: str = ""


@dataclass
class InMemorySlurm:
    """The methods of a gateway, and what Slurm's scheduler does; ``now_s`` is its clock.

    ``operator``: limits may be lengthened. ``instant``: elements end at once, and have no limits.
    ``works``: the scheduler starts and ends elements now. ``trainers`` are without their elements.
    """

    now_s: float
    node_names: list[str]
    operator: bool = True
    instant: bool = False
    name: str = "in memory"
    works: bool = True
    configured: Configuration = field(default_factory=Configuration)
    reserved: tuple[Reservation, ...] = ()
    passed: BackfillPass | None = None
    ordinary: set[str] = field(default_factory=set)  # nodes of ordinary jobs
    waiting: dict[int, WaitingJob] = field(default_factory=dict)
    said: list[tuple[ElementId, str]] = field(default_factory=list)  # to elements
    trainers: dict[int, Trainer] = field(default_factory=dict)
    jobs: dict[int, dict[int, Job]] = field(default_factory=dict)  # by array and task
    _in: dict[ElementState, dict[Job, None]] = field(default_factory=lambda: defaultdict(dict))
    _seen: dict[int, Trainer] = field(default_factory=dict)  # until one of its elements changes

    # What the controller calls: bftrainer_slurm.slurm.gateway.Gateway.

    def queue(self) -> Queue:
        """Return the trainers with their elements, and the ordinary jobs."""
        self._answer("queue")
        trainers = tuple(self._trainer(array) for array in self.jobs)
        return Queue(trainers, tuple(self.waiting.values()), frozenset(self.ordinary))

    def remember(self, trainers: object) -> None:
        """See Gateway. No comments are lost here."""

    def reservations(self) -> tuple[Reservation, ...]:
        """Return active and future reservations."""
        self._answer("reservations")
        return self.reserved

    def configuration(self, partition: str) -> Configuration:
        """Return the settings of slurm.conf."""
        self._answer("configuration")
        return self.configured

    def last_pass(self) -> BackfillPass | None:
        """Return the last pass of backfill."""
        self._answer("last_pass")
        return self.passed

    def grow(
        self,
        elements: Sequence[ElementId],
        nodes: frozenset[str],
        others: frozenset[str],
        limit: TimeLimit | None,
        *,
        excluded: frozenset[str],
    ) -> None:
        """Release elements onto these nodes; they start as soon as the scheduler works."""
        assert len(elements) == len(nodes), "a node for each element"
        assert not nodes & others, "nodes are not among the others"
        for job in self._changed("grow", elements, HELD, DELAYED):
            job.targets, job.limit, job.reason = nodes, limit or job.limit, ""
            self.move(job, PENDING)
        self.schedule()

    def shrink(self, elements: Sequence[ElementId]) -> None:
        """End elements and hold them."""
        for job in self._changed("shrink", elements, RUNNING, PENDING, DELAYED, ENDING):
            self._end_later(job, HELD)

    def revive(self, elements: Sequence[ElementId]) -> None:
        """Requeue and hold elements that have ended."""
        ended = FAILED, ElementState.COMPLETED, ElementState.PREEMPTED
        for job in self._changed("revive", elements, *ended):
            self.end(job, HELD)

    def hold(self, elements: Sequence[ElementId]) -> None:
        """Hold elements that wait."""
        for job in self._changed("hold", elements, PENDING, DELAYED, HELD):
            job.reason = ""
            self.move(job, HELD)

    def end_at(self, elements: Sequence[ElementId], end_s: float) -> None:
        """Set the time limits of running elements."""
        for job in self._changed("end_at", elements, RUNNING):
            longer = job.limit_end_s is not None and end_s > job.limit_end_s
            assert self.operator or not longer, "only operators may lengthen limits"
            job.limit_end_s = end_s
            self._seen.pop(job.id.array, None)

    def trim(self, elements: Sequence[ElementId]) -> None:
        """Cancel elements that wait."""
        for job in self._changed("trim", elements, HELD, PENDING, DELAYED):
            self.end(job, ElementState.CANCELLED)

    def label(self, elements: Sequence[ElementId], comment: str) -> None:
        """Set the comment of a trainer, which its user has overwritten."""
        array = elements[0].array
        assert self.trainers[array].overwritten, "nobody overwrites what is there"
        self.trainers[array] = replace(self.trainers[array], comment=comment, overwritten=False)
        self._seen.pop(array, None)

    def tell(self, element: ElementId, text: str) -> None:
        """Write a line into the output of a running element."""
        if self._changed("tell", (element,), RUNNING):
            self.said.append((element, text))

    def cancel(self, array: int) -> None:
        """Cancel the rest of a trainer."""
        for job in self.jobs.get(array, {}).values():
            if not job.state.over:
                self._end_later(job, ElementState.CANCELLED)

    # What happens.

    def elements(self, *states: ElementState) -> list[Job]:
        """Return the elements in these states; all, if none is given."""
        return [job for state in states or ElementState for job in tuple(self._in[state])]

    def submit(self, trainer: Trainer) -> None:
        """A trainer comes, with all its elements held; one that had its id is forgotten."""
        if trainer.array in self.jobs:
            self.forget(trainer.array)
        self.trainers[trainer.array] = trainer
        for task in range(trainer.record.max_nodes):
            self.put(Job(ElementId(trainer.array, task), self.now_s))

    def put(self, job: Job) -> None:
        """An element is there, in place of what it was."""
        jobs = self.jobs.setdefault(job.id.array, {})
        before, jobs[job.id.task] = jobs.get(job.id.task, job), job
        self._in[before.state].pop(before, None)
        self.move(job, job.state)

    def forget(self, array: int, *tasks: int) -> None:
        """Slurm no longer knows these elements of a trainer, or all of it."""
        for task in tasks or tuple(self.jobs[array]):
            job = self.jobs[array].pop(task)
            del self._in[job.state][job]
        self._seen.pop(array, None)
        if not self.jobs[array]:
            del self.jobs[array]

    def move(self, job: Job, state: ElementState) -> None:
        """An element is in this state from now on."""
        self._in[job.state].pop(job, None)
        self._in[state][job] = None
        job.state = state
        self._seen.pop(job.id.array, None)

    def end(self, job: Job, how: ElementState, status: int | None = None) -> None:
        """An element is over, or waits again."""
        job.exit_status, job.end_s, job.reason, job.then = status, self.now_s, "", None
        if not how.over:
            job.node, job.start_s, job.end_s, job.queued_s = None, None, None, self.now_s
        self.move(job, how)

    def reclaim(self, nodes: Set[str], *states: ElementState) -> list[Job]:
        """End and return what is on these nodes in these states; it will start again by itself."""
        lost = [job for job in self.elements(*states) if job.node in nodes]
        for job in lost:
            self.end(job, job.then or DELAYED)
        return lost

    def schedule(self) -> None:
        """End what is to be ended, in two steps; start what is released and finds a node."""
        if not self.works:
            return
        for job in self.elements(ENDING):
            self.end(job, job.then or FAILED)
        for job in self.elements(RUNNING):
            if job.then is not None:
                self.move(job, ENDING)
        released = [job for job in self.elements(PENDING) if not job.reason]
        taken = self.taken() if released else set()
        for job in released:
            node = self.room_for(job, taken)
            if node is not None:
                self.start(job, node)
                taken.add(node)

    def room_for(self, job: Job, taken: set[str]) -> str | None:
        """Return the node on which an element starts, None if there is none."""
        wanted = frozenset(self.node_names) if job.targets is None else job.targets
        return min(wanted - taken, default=None)

    def start(self, job: Job, node: str) -> None:
        """An element starts; backfill gives it its least time, if jobs wait."""
        minutes = job.limit.least if self.waiting else job.limit.minutes
        job.node, job.start_s = node, self.now_s
        job.limit_end_s = None if self.instant else self.now_s + 60.0 * minutes
        self.move(job, RUNNING)

    def used(self) -> set[str]:
        """Return the nodes that elements have."""
        return {job.node for job in self.elements(RUNNING, SUSPENDED, ENDING) if job.node}

    def taken(self) -> set[str]:
        """Return the nodes on which nothing can start."""
        return self.ordinary | self.used()

    # Inside.

    def _answer(self, request: str) -> None:
        """Answer a request that changes nothing: here always, and at once."""

    def _changed(
        self, request: str, elements: Sequence[ElementId], *states: ElementState
    ) -> list[Job]:
        """Return the elements that a request (its method's name) changes: those in these states."""
        known = (self.jobs.get(one.array, {}).get(one.task) for one in elements)
        return [job for job in known if job is not None and job.state in states]

    def _end_later(self, job: Job, then: ElementState) -> None:
        """End an element, once its processes have ended."""
        if job.state in (RUNNING, ENDING) and not self.instant:
            job.then = then
        else:
            self.end(job, then)

    def _trainer(self, array: int) -> Trainer:
        if array not in self._seen:
            elements = tuple(self._element(job) for job in self.jobs[array].values())
            self._seen[array] = replace(self.trainers[array], elements=elements)
        return self._seen[array]

    def _element(self, job: Job) -> Element:
        return Element(
            job.id, job.state, job.node, job.start_s,
            limit_end_s=job.limit_end_s if job.state is RUNNING else None,
            reason="BeginTime" if job.state is DELAYED else job.reason,
            queued_s=job.queued_s, end_s=job.end_s, exit_status=job.exit_status,
        )  # fmt: skip
