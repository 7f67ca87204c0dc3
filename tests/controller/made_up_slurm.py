"""The in-memory Slurm of the package, with users, admins and faults, for tests of the controller.

A fake, because real ones neither do all of this within a second, nor in an order that is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bftrainer_slurm.model import (
    Configuration,
    Element,
    ElementId,
    ElementState,
    Node,
    NodeState,
    Queue,
    Trainer,
)
from bftrainer_slurm.replay.slurm import (
    PARTITION,
    RUNNING,
    InMemorySlurm,
    Job,
)
from bftrainer_slurm.slurm.gateway import RefusedError, SlurmUnavailableError
from bftrainer_slurm.spec import Spec, TrainerRecord

BACKFILL_S = 30.0
_PATIENCE_S = 20.0  # a controller that has ended an element gives Slurm so much time at least


@dataclass
class MadeUpSlurm(InMemorySlurm):
    """Its methods that end in ``_`` are those of users, admins and time.

    ``controller_`` counts controllers, ``refused_`` refusals; ``done_`` are the changes that were
    ever made, ``starts_`` the nodes of all starts.
    """

    name: str = "made up"
    configured: Configuration = field(default_factory=lambda: Configuration(backfill_s=BACKFILL_S))
    away: bool = False
    refuses: bool = False  # the next change
    fails: dict[str, Exception] = field(default_factory=dict)  # the next request of this name
    ignores: set[str] = field(default_factory=set)  # which changes it takes, and does not make
    takes_s: float = 0.0  # each request
    meanwhile: list[Callable[[], object]] = field(default_factory=list)  # before each request
    behind: dict[int, str] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)  # nodes with jobs that nobody may see
    down: set[str] = field(default_factory=set)
    draining: set[str] = field(default_factory=set)
    asked_to_leave: set[ElementId] = field(default_factory=set)
    let_go_by_owner: set[ElementId] = field(default_factory=set)
    controller_: int = 0
    refused_: int = 0
    asked_: list[tuple[str, float]] = field(default_factory=list)  # each request, and when
    done_: set[str] = field(default_factory=set)
    starts_: list[str] = field(default_factory=list)
    cancelled_: list[int] = field(default_factory=list)
    # By which controller an element was told to end, and when.
    _told: dict[ElementId, tuple[int, float]] = field(default_factory=dict)

    # The gateway.

    def nodes(self) -> tuple[Node, ...]:
        self._answer("nodes")
        return tuple(Node(name, self._node_state(name), frozenset({PARTITION}))
                     for name in self.node_names)  # fmt: skip

    def queue(self) -> Queue:
        self._seen.clear()  # tests change jobs by hand
        return replace(super().queue(), behind=self.behind)

    def cancel(self, array: int) -> None:
        self._changed("cancel", ())
        self.cancelled_.append(array)
        self.cancel_(array)

    @property
    def requests_(self) -> list[str]:
        """What it was asked, in order."""
        return [request for request, _ in self.asked_]

    # Users, admins, time.

    def submit_(
        self, array: int, least: int, most: int, id_: str | None, sizes: tuple[int, ...] = ()
    ) -> None:
        record = TrainerRecord(least, most, Spec(), sizes=sizes, id=id_)
        self.submit(Trainer(array, "digits", "alice", PARTITION, record, self.now_s, ()))

    def be_(self, array: int, **facts: Any) -> None:
        """Something else is true of a trainer."""
        self.trainers[array] = replace(self.trainers[array], **facts)

    def change_(self, array: int, **record: Any) -> None:
        """A trainer's owner has written something else into its record."""
        self.be_(array, record=replace(self.trainers[array].record, **record))

    def put_(self, *elements: Element) -> None:
        """Elements are like this from now on, whatever they were."""
        for one in elements:
            self.put(Job(
                one.id, one.queued_s or self.now_s, one.state, one.node, start_s=one.start_s,
                end_s=one.end_s, exit_status=one.exit_status, reason=one.reason,
            ))  # fmt: skip

    def enter_(self, *trainers: Trainer) -> None:
        """These trainers are there, with their elements as they are."""
        for one in trainers:
            self.trainers[one.array] = one
            self.put_(*one.elements)

    def element_(self, id_: ElementId) -> Element:
        """An element as Slurm tells it."""
        return self._element(self.jobs[id_.array][id_.task])

    def cancel_(self, array: int) -> None:
        super().cancel(array)

    def start_ordinary_(self, node: str) -> None:
        """An ordinary job takes a node, and what runs there is reclaimed."""
        self.ordinary.add(node)
        self.reclaim({node}, RUNNING)

    def running(self) -> dict[str, list[ElementId]]:
        """The elements on each node that nobody has ended."""
        found: dict[str, list[ElementId]] = {}
        for job in self.elements(RUNNING):
            if job.node is not None and job.then is None:
                found.setdefault(job.node, []).append(job.id)
        return found

    # What happens.

    def start(self, job: Job, node: str) -> None:
        super().start(job, node)
        self.starts_.append(node)

    def end(self, job: Job, how: ElementState, status: int | None = None) -> None:
        super().end(job, how, status)
        self.asked_to_leave.discard(job.id)
        self._told.pop(job.id, None)

    def taken(self) -> set[str]:
        return super().taken() | self.private | self.down | self.draining

    # Inside.

    def _answer(self, what: str) -> None:
        self.asked_.append((what, self.now_s))
        self.now_s += self.takes_s
        if self.meanwhile:
            self.meanwhile.pop(0)()
        if self.away:
            raise SlurmUnavailableError("no answer")
        if what in self.fails:
            raise self.fails.pop(what)

    def _changed(
        self, request: str, elements: Sequence[ElementId], *states: ElementState
    ) -> list[Job]:
        self._answer(request)
        if self.refuses:
            self.refuses, self.refused_ = False, self.refused_ + 1
            raise RefusedError("no")
        self.done_.add(request)
        changed = super()._changed(request, elements, *states)
        changed = [] if request in self.ignores else changed
        for job in changed:
            if request == "grow":
                self.let_go_by_owner.discard(job.id)
            elif request == "shrink":
                by, told_s = self._told.get(job.id, (0, 0.0))
                assert by != self.controller_ or self.now_s - told_s > _PATIENCE_S, "told twice"
                self._told[job.id] = self.controller_, self.now_s
        return changed

    def _node_state(self, name: str) -> NodeState:
        if name in self.down:
            return NodeState.UNAVAILABLE
        if name in self.draining:
            return NodeState.DRAINING
        return NodeState.BUSY if name in self.taken() else NodeState.IDLE
