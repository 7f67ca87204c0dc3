"""The in-memory Slurm of all tests of the controller: Slurm's rules, and users who do anything.

A fake, because real ones neither do all of this within a second, nor in an order that is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from bftrainer_slurm.model import (
    BackfillPass,
    Configuration,
    Demands,
    Element,
    ElementId,
    ElementState,
    Node,
    NodeState,
    Part,
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
WITHHELD, FAILED = ElementState.WITHHELD, ElementState.FAILED
SUSPENDED = ElementState.SUSPENDED
BACKFILL_S = 30.0
_A_DAY = TimeLimit(24 * 60, 24 * 60)
_PATIENCE_S = 20.0  # a controller that has ended an element gives Slurm so much time at least


@dataclass
class Job:
    """One element as slurmctld has it; times are Unix seconds, as Slurm tells them.

    ``then`` is what it becomes when it has ended, None if nobody has ended it. ``grown``: the
    controller let it go, and not its owner. ``asked``: it was asked to leave. ``reason``: why it
    waits, in Slurm's word; with one it does not start.
    """

    id: ElementId
    queued_s: float
    state: ElementState = HELD
    node: str | None = None
    targets: frozenset[str] | None = None  # None: any node
    grown: bool = False
    limit: TimeLimit = _A_DAY
    start_s: float | None = None
    limit_end_s: float | None = None
    end_s: float | None = None
    exit_status: int | None = None
    then: ElementState | None = None
    asked: bool = False
    told: tuple[int, float] | None = None  # by which controller to end, and when
    reason: str = ""

    @property
    def goes_on(self) -> bool:
        """Whether it runs, and nobody has ended it."""
        return self.state is RUNNING and self.then is None

    def end(self, how: ElementState, now_s: float, status: int | None = None) -> None:
        """It is over, or waits again."""
        self.state, self.exit_status, self.end_s, self.reason = how, status, now_s, ""
        self.then, self.told, self.asked = None, None, False
        if not how.over:
            self.node, self.start_s, self.end_s, self.queued_s = None, None, None, now_s


@dataclass
class MadeUpSlurm:
    """Has the methods of a gateway, and those of users, admins and time (``*_`` below).

    ``operator``: whether limits may be lengthened. ``at_once``: elements end at once, and there are
    no limits. ``controller_`` counts controllers, ``refused_`` refusals; ``done_`` are the changes
    that were ever made, ``starts_`` the nodes of all starts, ``said_`` what was told to elements.
    """

    now_s: float
    node_names: list[str]
    operator: bool = True
    at_once: bool = False
    name: str = "made up"
    queue_rpcs: int = 1
    grow_rpcs: int = 1
    away: bool = False
    works: bool = True  # its scheduler
    refuses: bool = False  # the next change
    fails: dict[str, Exception] = field(default_factory=dict)  # the next request of this name
    ignores: set[str] = field(default_factory=set)  # which changes it takes, and does not make
    takes_s: float = 0.0  # each request
    comment: str | None = ""  # the trainers' own; None: they have overwritten the record
    jobs: dict[int, dict[int, Job]] = field(default_factory=dict)
    records: dict[int, TrainerRecord] = field(default_factory=dict)
    users: dict[int, str] = field(default_factory=dict)  # of trainers that are not alice's
    submits_s: dict[int, float] = field(default_factory=dict)
    demands: dict[int, Demands] = field(default_factory=dict)
    behind: dict[int, str] = field(default_factory=dict)
    configured: Configuration = field(default_factory=lambda: Configuration(backfill_s=BACKFILL_S))
    ordinary: set[str] = field(default_factory=set)
    private: set[str] = field(default_factory=set)  # nodes with jobs that nobody may see
    down: set[str] = field(default_factory=set)
    draining: set[str] = field(default_factory=set)
    reserved: tuple[Reservation, ...] = ()
    waiting: dict[int, WaitingJob] = field(default_factory=dict)
    passed: BackfillPass | None = None
    controller_: int = 0
    refused_: int = 0
    asked_: list[tuple[str, float]] = field(default_factory=list)  # each request, and when
    done_: set[str] = field(default_factory=set)
    starts_: list[str] = field(default_factory=list)
    said_: list[tuple[ElementId, str]] = field(default_factory=list)
    cancelled_: list[int] = field(default_factory=list)

    # The gateway.

    def nodes(self) -> tuple[Node, ...]:
        self._answer("nodes")
        return tuple(Node(name, self._node_state(name), frozenset({PARTITION}))
                     for name in self.node_names)  # fmt: skip

    def queue(self) -> Queue:
        self._answer("queue")
        trainers = tuple(
            Trainer(
                array, "digits", self.users.get(array, "alice"), PARTITION,
                self.records[array], self.submits_s[array],
                tuple(self._element(job) for _, job in sorted(jobs.items())),
                comment="project-x" if self.comment is None else "",
                overwritten=self.comment is None, demands=self.demands.get(array, Demands()),
            )
            for array, jobs in sorted(self.jobs.items()) if jobs
        )  # fmt: skip
        waiting = tuple(self.waiting.values())
        return Queue(trainers, waiting, frozenset(self.ordinary), behind=self.behind)

    def reservations(self) -> tuple[Reservation, ...]:
        self._answer("reservations")
        return self.reserved

    def configuration(self, partition: str) -> Configuration:
        self._answer("configuration")
        return self.configured

    def last_pass(self) -> BackfillPass | None:
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
        part: Part | None = None,
    ) -> None:
        assert len(elements) == len(nodes), "a node for each element"
        assert not nodes & others, "nodes are not among the others"
        for job in self._changed("grow", elements, {HELD, DELAYED}):
            job.state, job.targets, job.grown, job.reason = PENDING, nodes, True, ""
            job.limit = limit or job.limit
        self.schedule_()

    def shrink(self, elements: Sequence[ElementId]) -> None:
        for job in self._changed("shrink", elements, {RUNNING, PENDING, DELAYED, ENDING}):
            by, told_s = job.told or (0, 0.0)
            assert by != self.controller_ or self.now_s - told_s > _PATIENCE_S, "told twice"
            job.told = self.controller_, self.now_s
            self._end(job, HELD)

    def revive(self, elements: Sequence[ElementId]) -> None:
        ended = {FAILED, ElementState.COMPLETED, ElementState.PREEMPTED}
        for job in self._changed("revive", elements, ended):
            job.end(HELD, self.now_s)

    def hold(self, elements: Sequence[ElementId]) -> None:
        for job in self._changed("hold", elements, {PENDING, DELAYED, HELD}):
            job.state, job.reason = HELD, ""

    def end_at(self, elements: Sequence[ElementId], end_s: float) -> None:
        for job in self._changed("end_at", elements, {RUNNING}):
            longer = job.limit_end_s is not None and end_s > job.limit_end_s
            assert self.operator or not longer, "only operators may lengthen limits"
            job.limit_end_s = end_s

    def trim(self, elements: Sequence[ElementId]) -> None:
        for job in self._changed("trim", elements, {HELD, PENDING, DELAYED}):
            job.end(ElementState.CANCELLED, self.now_s)

    def label(self, elements: Sequence[ElementId], comment: str) -> None:
        assert self.comment is None, "nobody overwrites what is there"
        self.comment = comment

    def tell(self, element: ElementId, text: str) -> None:
        if any(self._changed("tell", (element,), {RUNNING})):
            self.said_.append((element, text))

    def cancel(self, array: int) -> None:
        self._changed("cancel", (), set())
        self.cancelled_.append(array)
        self.cancel_(array)

    # Users, admins, time.

    def all_(self, *states: ElementState) -> list[Job]:
        """The elements in one of these states; all, if none is given."""
        every = (job for jobs in self.jobs.values() for job in jobs.values())
        return [job for job in every if not states or job.state in states]

    def submit_(
        self, array: int, least: int, most: int, id_: str | None, sizes: tuple[int, ...] = ()
    ) -> None:
        self.jobs[array] = {task: Job(ElementId(array, task), self.now_s) for task in range(most)}
        self.records[array] = TrainerRecord(least, most, Spec(), sizes=sizes, id=id_)
        self.submits_s[array] = self.now_s

    def change_(self, array: int, **record: object) -> None:
        """A trainer's owner has written something else into its record."""
        self.records[array] = replace(self.records[array], **record)  # type: ignore[arg-type]

    def put_(self, *elements: Element) -> None:
        """Elements are like this from now on, whatever they were."""
        for one in elements:
            self.jobs.setdefault(one.id.array, {})[one.id.task] = Job(
                one.id, one.queued_s or self.now_s, one.state, one.node, start_s=one.start_s,
                end_s=one.end_s, exit_status=one.exit_status, reason=one.reason,
            )  # fmt: skip

    def enter_(self, *trainers: Trainer) -> None:
        """These trainers are there, with their elements as they are."""
        for one in trainers:
            self.records[one.array], self.submits_s[one.array] = one.record, one.submit_s
            self.put_(*one.elements)

    def sleep_(self, seconds: float) -> None:
        """Time passes."""
        self.now_s += seconds

    def forget_(self, array: int, *tasks: int) -> None:
        """MinJobAge is over for these elements of a trainer, or for all of it."""
        for task in tasks or tuple(self.jobs[array]):
            del self.jobs[array][task]

    def element_(self, id_: ElementId) -> Element:
        """An element as Slurm tells it."""
        return self._element(self.jobs[id_.array][id_.task])

    def on_(self, array: int) -> dict[str, int]:
        """The task on each of a trainer's nodes."""
        running = (job for job in self.all_(RUNNING) if job.id.array == array)
        return {job.node: job.id.task for job in running if job.node}

    def cancel_(self, array: int) -> None:
        for job in self.jobs.get(array, {}).values():
            if not job.state.over:
                self._end(job, ElementState.CANCELLED)

    def release_(self, job: Job, node: str | None) -> None:
        """Its owner lets a waiting element go, on a node or anywhere."""
        job.state, job.targets = PENDING, None if node is None else frozenset({node})
        job.grown = False
        self.schedule_()

    def purge_(self) -> None:
        """MinJobAge is over: slurmctld forgets what has ended."""
        for array, jobs in list(self.jobs.items()):
            self.jobs[array] = {task: job for task, job in jobs.items() if not job.state.over}
            if not self.jobs[array]:
                del self.jobs[array]

    def start_ordinary_(self, node: str) -> None:
        """An ordinary job takes a node, and what runs there is reclaimed."""
        self.ordinary.add(node)
        self._requeue(node, RUNNING)

    def fail_(self, node: str) -> None:
        """A node is down: nothing stays there, suspended or not."""
        self.down.add(node)
        self._requeue(node, RUNNING, SUSPENDED)

    def schedule_(self) -> None:
        """End what is to be ended, in two steps; start what pends and can."""
        if not self.works:
            return
        for job in self.all_(ENDING):
            job.end(job.then or FAILED, self.now_s)
        for job in self.all_(RUNNING):
            if job.then is not None:
                job.state = ENDING
        for job in self.all_(PENDING):
            free = [] if job.reason else self._room_for(job)
            if free:
                minutes = job.limit.least if self.waiting else job.limit.minutes
                job.state, job.node, job.start_s = RUNNING, free[0], self.now_s
                job.limit_end_s = None if self.at_once else self.now_s + 60.0 * minutes
                self.starts_.append(free[0])

    def begin_(self) -> None:
        """Begin times are over: what was reclaimed, and not held since, starts again."""
        for job in self.all_(DELAYED):
            job.state = PENDING
        self.schedule_()

    def running(self) -> dict[str, list[ElementId]]:
        """The elements on each node that nobody has ended."""
        found: dict[str, list[ElementId]] = {}
        for job in self.all_(RUNNING):
            if job.node is not None and job.goes_on:
                found.setdefault(job.node, []).append(job.id)
        return found

    def taken(self) -> set[str]:
        """Nodes on which nothing can start."""
        ours = {job.node for job in self.all_(RUNNING, SUSPENDED, ENDING) if job.node}
        return ours | self.ordinary | self.private | self.down | self.draining

    # Inside.

    def _room_for(self, job: Job) -> list[str]:
        """The nodes on which it can start."""
        wanted = job.targets if job.targets is not None else frozenset(self.node_names)
        return sorted(wanted - self.taken())

    def _answer(self, what: str) -> None:
        self.asked_.append((what, self.now_s))
        self.now_s += self.takes_s
        if self.away:
            raise SlurmUnavailableError("no answer")
        if what in self.fails:
            raise self.fails.pop(what)

    def _changed(
        self, what: str, elements: Sequence[ElementId], states: set[ElementState]
    ) -> Iterator[Job]:
        self._answer(what)
        if self.refuses:
            self.refuses, self.refused_ = False, self.refused_ + 1
            raise RefusedError("no")
        self.done_.add(what)
        if what in self.ignores:
            return iter(())
        known = (self.jobs.get(one.array, {}).get(one.task) for one in elements)
        return iter([job for job in known if job is not None and job.state in states])

    def _end(self, job: Job, then: ElementState) -> None:
        if job.state in (RUNNING, ENDING) and not self.at_once:
            job.then = then
        else:
            job.end(then, self.now_s)

    def _requeue(self, node: str, *states: ElementState) -> None:
        """What is on a node in these states ends, and would start again by itself."""
        for job in self.all_(*states):
            if job.node == node:
                job.end(job.then or DELAYED, self.now_s)

    def _element(self, job: Job) -> Element:
        return Element(
            job.id, job.state, job.node, job.start_s,
            limit_end_s=job.limit_end_s if job.state is RUNNING else None,
            reason="BeginTime" if job.state is DELAYED else job.reason,
            queued_s=job.queued_s, end_s=job.end_s, exit_status=job.exit_status,
        )  # fmt: skip

    def _node_state(self, name: str) -> NodeState:
        if name in self.down:
            return NodeState.UNAVAILABLE
        if name in self.draining:
            return NodeState.DRAINING
        return NodeState.BUSY if name in self.taken() else NodeState.IDLE


def renamed(record: TrainerRecord, least: int) -> TrainerRecord:
    """The record with another least size, as its owner may write it into the comment."""
    return replace(record, min_nodes=min(least, record.max_nodes), sizes=())
