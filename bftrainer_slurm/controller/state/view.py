"""A trainer after a look: where its elements are, and which of them can be released. Pure.

``decide`` decides what to do about it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import itemgetter
from types import MappingProxyType
from typing import TypeAlias

from bftrainer_slurm.controller.state.failing_sizes import FailedSize
from bftrainer_slurm.controller.state.phases import (
    BROKEN,
    CAN_START,
    OCCUPIES,
    ElementRecord,
    Phase,
)
from bftrainer_slurm.controller.state.trainer_state import FINISHED, TrainerState
from bftrainer_slurm.model import Element, ElementId, ElementState, Trainer
from bftrainer_slurm.sizes import Sizes

_FAILED = (*BROKEN, Phase.REVIVED)


@dataclass(frozen=True, slots=True)
class TrainerView:
    """A trainer, its state, and its elements sorted by what they can do."""

    trainer: Trainer
    state: TrainerState
    placed: Mapping[ElementId, str]  # nodes of elements that run, or are released and about to run
    spare: tuple[ElementId, ...]  # elements that can be released
    surplus: tuple[ElementId, ...] = ()  # they run or wait, but others have all their nodes

    @property
    def array(self) -> int:
        """The id of its job array."""
        return self.trainer.array

    @property
    def gpus(self) -> int:
        """How many GPUs each element takes of its node; 0 if elements have whole nodes."""
        return self.trainer.demands.gpus

    @property
    def above_least(self) -> int:
        """How many nodes the trainer can lose without falling below its least size."""
        return len(self.placed) - self.trainer.record.min_nodes

    @property
    def submit_s(self) -> float:
        """When it was submitted first: a requeue gives an element a new time of submission."""
        return min(self.trainer.submit_s, self.state.submit_s)

    @property
    def sizes(self) -> Sizes:
        """The numbers of nodes on which the trainer can train."""
        return Sizes(self.trainer.record.sizes, self.trainer.record.step)

    def sizes_now(self, now_s: float) -> Sizes:
        """Return its sizes without those on which its script fails."""
        record, tried = self.trainer.record, self.state.tried
        if not tried.failed:  # most trainers
            return self.sizes
        return tried.allowed(self.sizes, record.min_nodes, record.max_nodes, now_s)

    def left_out(self, now_s: float) -> dict[int, FailedSize]:
        """Return the sizes on which its script fails, so that it does without them."""
        return self.state.tried.left_out(now_s) if self.state.tried.failed else {}

    def untried(self, now_s: float) -> bool:
        """Whether its script has never trained, and has not failed on smaller sizes."""
        record, tried = self.trainer.record, self.state.tried
        sizes = self.sizes.between(record.min_nodes, record.max_nodes)
        return not tried.trained and bool(tried.smaller(sizes, now_s))

    @property
    def finishing(self) -> bool:
        """Whether an element has ended successfully, so that the others are about to end too."""
        return self.state.over == FINISHED

    @property
    def over(self) -> bool:
        """Whether the trainer is not run any more."""
        return self.state.over is not None

    @property
    def abandoned(self) -> bool:
        """Whether its owner has cancelled all of it, except elements that were just requeued.

        scancel skips failed elements, so these would live on alone. If an element failed after
        that, scancel has not skipped it: the owner has cancelled only some of the elements.
        """
        elements = self.trainer.elements
        cancelled = [one for one in elements if one.state is ElementState.CANCELLED]
        left = (self.state.of(one.id.task) for one in elements if not one.state.over)
        if not cancelled or any(record.phase is not Phase.REVIVED for record in left):
            return False
        cancelled_s = max(map(self._over_s, cancelled))
        failed = (one for one in elements if self.state.of(one.id.task).phase in _FAILED)
        return all(self._over_s(one) <= cancelled_s for one in failed)

    def _over_s(self, element: Element) -> float:
        """Return when an element ended: Slurm's time (whole seconds) if known; looks are late."""
        end_s = element.end_s
        return self.state.of(element.id.task).since_s if end_s is None else end_s + 1.0

    @property
    def all_ended(self) -> bool:
        """Whether all elements have ended, and none will be requeued."""
        if not all(one.state.over for one in self.trainer.elements):
            return False
        return self.over or self.abandoned or not any(self.within(*_FAILED))

    def rests(self, rested_s: float) -> bool:
        """Whether it cannot grow only because elements ended after ``rested_s`` (Unix seconds)."""
        if self.spare or self.over or self.state.settled:
            return False
        return any(record.since_s > rested_s for _, record in self.within(*CAN_START))

    def is_of(self, trainer: Trainer, state: TrainerState) -> bool:
        """Whether the view was made from these two objects, and time alone does not change it."""
        return self.trainer is trainer and self.state is state and state.settled

    @property
    def live(self) -> bool:
        """Whether any element runs, ends, or is about to start."""
        return bool(self.placed) or any(self.within(*OCCUPIES))

    @property
    def since_s(self) -> float:
        """Since when it may have had a node without a break (Unix seconds); inf: it has none."""
        records = self.state.elements.values()
        there = (one.start_s or -math.inf for one in records if one.phase in OCCUPIES)
        about_to = (one.since_s for one in records if one.phase is Phase.RELEASED)
        return min(chain(there, about_to), default=math.inf)

    def within(self, *phases: Phase) -> Iterator[tuple[ElementId, ElementRecord]]:
        """Yield the elements in these phases, and their records."""
        return (
            (ElementId(self.array, task), record)
            for task, record in sorted(self.state.elements.items())
            if record.phase in phases
        )

    def ids(self, *phases: Phase) -> tuple[ElementId, ...]:
        """Return the elements in these phases."""
        return tuple(id_ for id_, _ in self.within(*phases))

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes of its elements."""
        return frozenset(self.placed.values())

    def running(self) -> dict[ElementId, str]:
        """Return the nodes of its running elements."""
        return {
            id_: node
            for id_, node in self.placed.items()
            if self.state.of(id_.task).phase is Phase.RUNNING
        }

    def on_since_s(self) -> dict[str, float | None]:
        """Return when an element started on each node; before the next look, by its own report."""
        known: dict[str, float | None] = {}
        for id_, node in self.placed.items():
            record = self.state.of(id_.task)
            if record.phase is Phase.RUNNING:
                known[node] = record.start_s
            elif record.up is not None:
                known[record.up[0]] = record.up[1]
        for _, record in self.within(Phase.LEAVING):
            if record.node is not None:
                known[record.node] = record.start_s
        return known

    def starts_s(self) -> dict[str, float]:
        """Return when its running elements started on their nodes, as far as known."""
        starts = ((node, self.state.of(id_.task).start_s) for id_, node in self.running().items())
        return {node: start_s for node, start_s in starts if start_s is not None}


def views_of(
    trainers: Iterable[tuple[Trainer, TrainerState]],
    ordinary_nodes: frozenset[str] = frozenset(),
    rested_s: float = math.inf,
    last: Mapping[int, TrainerView] = MappingProxyType({}),
) -> tuple[TrainerView, ...]:
    """Make the trainers' views: each node, or a trainer's part of it, belongs to one element only.

    Ordinary jobs come before elements with whole nodes, then running elements, then released ones.
    Of two running elements, the one that started first gets the node. Only elements that ended
    before ``rested_s`` (Unix seconds) can be released. Views from ``last`` (by array) are reused if
    nothing has changed; elements keep their nodes.
    """
    known = list(trainers)
    same = {
        trainer.array: view
        for trainer, state in known
        if (view := last.get(trainer.array)) and view.is_of(trainer, state) and not view.surplus
    }
    if len(same) == len(known) and all(
        view.gpus or ordinary_nodes.isdisjoint(view.placed.values()) for view in same.values()
    ):
        return tuple(same.values())  # most of the time
    claims = [list(_claims(trainer, state)) for trainer, state in known]
    placed = _placed(chain.from_iterable(claims), ordinary_nodes, last)
    views: list[TrainerView] = []
    for (trainer, state), mine in zip(known, claims, strict=True):
        on = {id_: placed[id_] for _, id_, *_ in mine if id_ in placed}
        view = same.get(trainer.array)
        if view is None or view.placed != on:
            surplus = tuple(id_ for _, id_, *_ in mine if id_ not in placed)
            view = TrainerView(trainer, state, on, _spare(trainer, state, rested_s), surplus)
        views.append(view)
    return tuple(views)


def check(trainer: Trainer, state: TrainerState, now_s: float) -> None:
    """Read of one trainer what a turn reads of all of them together.

    Raises:
        Exception: as a whole turn would.
    """
    (view,) = views_of([(trainer, state)])
    view.rests(now_s), view.sizes_now(now_s), view.all_ended, view.since_s, view.submit_s
    view.ids(*OCCUPIES), view.starts_s(), view.nodes, view.above_least, state.settled
    state.refusal_at(now_s), view.over


_Claim: TypeAlias = tuple[float, ElementId, int, frozenset[str]]


def _placed(
    claims: Iterable[_Claim], ordinary_nodes: frozenset[str], last: Mapping[int, TrainerView]
) -> dict[ElementId, str]:
    """Give each node to one element, in the order of their claims; it keeps the one it had.

    A trainer with parts of nodes has one part of a node at most, whoever has the others.
    """
    placed: dict[ElementId, str] = {}
    taken: set[tuple[int, str]] = set()

    def free(part: int, node: str) -> bool:
        return (part, node) not in taken and (part > 0 or node not in ordinary_nodes)

    others: dict[tuple[int, Set[str]], Iterator[str]] = {}  # thousands of elements share a set
    for _, id_, part, nodes in sorted(claims, key=itemgetter(0, 1)):
        if (part, nodes) not in others:
            others[part, nodes] = filter(partial(free, part), sorted(nodes))
        view = last.get(id_.array)
        node = None if view is None else view.placed.get(id_)
        if node not in nodes or not free(part, node):
            node = next(others[part, nodes], None)
        if node is not None:
            placed[id_] = node
            taken.add((part, node))
    return placed


def _claims(trainer: Trainer, state: TrainerState) -> Iterator[_Claim]:
    """Yield each element that runs or may start: its start, its id, and the nodes it may have.

    Before the nodes: its trainer, if that has parts of nodes, else 0.
    """
    part = trainer.array if trainer.demands.gpus else 0
    for task, record in sorted(state.elements.items()):
        if record.phase is Phase.RELEASED:
            yield math.inf, ElementId(trainer.array, task), part, record.targets
        elif record.phase is Phase.RUNNING and record.node is not None:
            node = frozenset({record.node})
            yield record.start_s or 0.0, ElementId(trainer.array, task), part, node


def _spare(trainer: Trainer, state: TrainerState, rested_s: float) -> tuple[ElementId, ...]:
    """Return the elements that can be released, held ones first: Slurm may still end the others."""
    known = ((one.id, state.of(one.id.task)) for one in trainer.elements)
    ready = sorted(
        (record.phase is Phase.RECLAIMED, id_)
        for id_, record in known
        if record.phase in CAN_START and record.since_s <= rested_s
    )
    return tuple(id_ for _, id_ in ready)


def without(view: TrainerView, gone: Set[ElementId]) -> TrainerView:
    """Return the view as if these elements had already left."""
    if gone.isdisjoint(view.placed) and gone.isdisjoint(view.spare):
        return view
    placed = {id_: node for id_, node in view.placed.items() if id_ not in gone}
    return replace(view, placed=placed, spare=tuple(id_ for id_ in view.spare if id_ not in gone))


def note_rescale(
    view: TrainerView, before: Set[str], up_s: float, down_s: float, now_s: float
) -> TrainerState:
    """Return a trainer's state with the pause after a change from its nodes ``before``.

    The pause takes ``up_s`` seconds if elements have joined, else ``down_s``; a look may see a
    start late. Elements that started no later than the old ones, for example on another trainer's
    node, belong to the start and cause no pause.
    """
    state, nodes, starts_s = view.state, view.nodes, view.starts_s()
    if not before or not nodes or nodes == before:
        return state
    until_s = now_s + down_s
    if joined := nodes - before:
        known = (starts_s[node] for node in joined & starts_s.keys())
        joined_s = min(now_s, max(known, default=now_s))
        together = all(starts_s.get(node, -math.inf) >= joined_s for node in nodes & before)
        until_s = now_s if together else joined_s + up_s
    return replace(state, paused_until_s=max(state.paused_until_s, until_s))
