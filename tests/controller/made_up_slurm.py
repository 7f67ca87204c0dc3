"""A made-up slurmctld for property tests: a queue with Slurm's rules, and users who do anything.

A fake, because real ones neither do all of this within a second, nor in an order that is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bftrainer_slurm.model import (
    BackfillPass,
    Configuration,
    Element,
    ElementId,
    ElementState,
    Node,
    NodeState,
    Queue,
    Reservation,
    TimeLimit,
    Trainer,
    WaitingJob,
)
from bftrainer_slurm.slurm.gateway import RefusedError, SlurmUnavailableError
from bftrainer_slurm.spec import Spec, TrainerRecord

PARTITION = "bftrainer"
HELD, PENDING, DELAYED = ElementState.HELD, ElementState.PENDING, ElementState.DELAYED
RUNNING, ENDING = ElementState.RUNNING, ElementState.ENDING


@dataclass
class Job:
    """One element as slurmctld has it."""

    state: ElementState = HELD
    node: str | None = None
    targets: frozenset[str] | None = None  # None: any node
    start_s: float | None = None
    then: ElementState = HELD  # after it has ended


@dataclass
class MadeUpSlurm:
    """Has the methods of a gateway, and those of users, admins and time (``*_`` below)."""

    now_s: float
    node_names: tuple[str, ...]
    name: str = "made up"
    queue_rpcs: int = 1
    grow_rpcs: int = 1
    away: bool = False
    refuses: bool = False  # the next change
    jobs: dict[int, dict[int, Job]] = field(default_factory=dict)
    records: dict[int, TrainerRecord] = field(default_factory=dict)
    ordinary: set[str] = field(default_factory=set)
    down: set[str] = field(default_factory=set)
    draining: set[str] = field(default_factory=set)
    reserved: tuple[Reservation, ...] = ()
    waiting: dict[int, WaitingJob] = field(default_factory=dict)
    passed: BackfillPass | None = None

    # The gateway.

    def nodes(self) -> tuple[Node, ...]:
        self._answer()
        return tuple(Node(name, self._node_state(name), frozenset({PARTITION}))
                     for name in self.node_names)  # fmt: skip

    def queue(self) -> Queue:
        self._answer()
        trainers = tuple(
            Trainer(
                array, "made up", "alice", PARTITION, self.records[array], self.now_s - 60.0,
                tuple(self._element(array, task, job) for task, job in sorted(jobs.items())),
            )
            for array, jobs in sorted(self.jobs.items()) if jobs
        )  # fmt: skip
        return Queue(trainers, tuple(self.waiting.values()), frozenset(self.ordinary))

    def reservations(self) -> tuple[Reservation, ...]:
        self._answer()
        return self.reserved

    def configuration(self, partition: str) -> Configuration:
        self._answer()
        return Configuration(backfill_s=30.0)

    def last_pass(self) -> BackfillPass | None:
        self._answer()
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
        assert len(elements) == len(nodes), "a node for each element"
        assert not nodes & others, "nodes are not among the others"
        for job in self._changed(elements, {HELD, DELAYED}):
            job.state, job.targets = PENDING, nodes
        self.schedule_()

    def shrink(self, elements: Sequence[ElementId]) -> None:
        for job in self._changed(elements, {RUNNING, PENDING, DELAYED, ENDING}):
            if job.state is RUNNING:
                job.state, job.then = ENDING, HELD
            elif job.state is ENDING:
                job.then = HELD
            else:
                job.state = HELD

    def revive(self, elements: Sequence[ElementId]) -> None:
        for job in self._changed(elements, {ElementState.FAILED, ElementState.COMPLETED}):
            job.state, job.node = HELD, None

    def hold(self, elements: Sequence[ElementId]) -> None:
        for job in self._changed(elements, {PENDING, DELAYED, HELD}):
            job.state = HELD

    def end_at(self, elements: Sequence[ElementId], end_s: float) -> None:
        self._changed(elements, {RUNNING})

    def trim(self, elements: Sequence[ElementId]) -> None:
        for job in self._changed(elements, {HELD, PENDING, DELAYED}):
            job.state = ElementState.CANCELLED

    def cancel(self, array: int) -> None:
        self._answer()
        self.cancel_(array)

    # Users, admins, time.

    def submit_(self, array: int, least: int, most: int, id_: str) -> None:
        self.jobs[array] = {task: Job() for task in range(most)}
        self.records[array] = TrainerRecord(least, most, Spec(), id=id_)

    def cancel_(self, array: int) -> None:
        for job in self.jobs.get(array, {}).values():
            if job.state is RUNNING:
                job.state, job.then = ENDING, ElementState.CANCELLED
            elif job.state is ENDING:
                job.then = ElementState.CANCELLED
            elif not job.state.over:
                job.state = ElementState.CANCELLED

    def end_(self, array: int, task: int, how: ElementState) -> None:
        """An element ends by itself."""
        job = self.jobs.get(array, {}).get(task)
        if job is not None and job.state is RUNNING:
            job.state = how

    def release_(self, array: int, task: int, node: str | None) -> None:
        """Its owner lets an element go, on a node or anywhere."""
        job = self.jobs.get(array, {}).get(task)
        if job is not None and job.state in (HELD, DELAYED):
            job.state, job.targets = PENDING, None if node is None else frozenset({node})
            self.schedule_()

    def purge_(self) -> None:
        """MinJobAge is over: slurmctld forgets what has ended."""
        for array, jobs in list(self.jobs.items()):
            self.jobs[array] = {task: job for task, job in jobs.items() if not job.state.over}
            if not self.jobs[array]:
                del self.jobs[array]

    def start_ordinary_(self, node: str) -> None:
        """An ordinary job takes a node, and what is on it is reclaimed."""
        self.ordinary.add(node)
        for jobs in self.jobs.values():
            for job in jobs.values():
                if job.node == node and job.state is RUNNING:
                    job.state, job.node = DELAYED, None

    def schedule_(self) -> None:
        """Start what pends and can; end what is ending."""
        for jobs in self.jobs.values():
            for job in jobs.values():
                if job.state is ENDING:
                    job.state, job.node = job.then, None
        for jobs in self.jobs.values():
            for job in jobs.values():
                wanted = job.targets if job.targets is not None else frozenset(self.node_names)
                free = sorted(wanted - self.taken())
                if job.state is PENDING and free:
                    job.state, job.node, job.start_s = RUNNING, free[0], self.now_s

    def begin_(self) -> None:
        """Begin times are over: what was reclaimed, and not held since, starts again."""
        for jobs in self.jobs.values():
            for job in jobs.values():
                if job.state is DELAYED:
                    job.state = PENDING
        self.schedule_()

    def running(self) -> dict[str, list[ElementId]]:
        """The elements on each node."""
        found: dict[str, list[ElementId]] = {}
        for array, jobs in self.jobs.items():
            for task, job in jobs.items():
                if job.state is RUNNING and job.node is not None:
                    found.setdefault(job.node, []).append(ElementId(array, task))
        return found

    def taken(self) -> set[str]:
        """Nodes on which nothing can start."""
        ours = {job.node for jobs in self.jobs.values() for job in jobs.values()
                if job.state in (RUNNING, ENDING) and job.node}  # fmt: skip
        return ours | self.ordinary | self.down | self.draining

    # Inside.

    def _answer(self) -> None:
        if self.away:
            raise SlurmUnavailableError("no answer")

    def _changed(self, elements: Sequence[ElementId], states: set[ElementState]) -> list[Job]:
        self._answer()
        if self.refuses:
            self.refuses = False
            raise RefusedError("no")
        jobs = [self.jobs.get(one.array, {}).get(one.task) for one in elements]
        return [job for job in jobs if job is not None and job.state in states]

    def _element(self, array: int, task: int, job: Job) -> Element:
        reason = "BeginTime" if job.state is DELAYED else ""
        return Element(ElementId(array, task), job.state, job.node, job.start_s, reason=reason)

    def _node_state(self, name: str) -> NodeState:
        if name in self.down:
            return NodeState.UNAVAILABLE
        if name in self.draining:
            return NodeState.DRAINING
        return NodeState.BUSY if name in self.taken() else NodeState.IDLE


def renamed(record: TrainerRecord, least: int) -> TrainerRecord:
    """The record with another least size, as its owner may write it into the comment."""
    return replace(record, min_nodes=min(least, record.max_nodes))
