"""A trainer after a look: where its elements are, and which of them can be released. Pure.

``decide`` says what to do about it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from types import MappingProxyType

from bftrainer_slurm.controller.state.phases import ElementRecord, Phase
from bftrainer_slurm.controller.state.trainer_state import FINISHED, TrainerState
from bftrainer_slurm.model import Element, ElementId, ElementState, Trainer


@dataclass(frozen=True, slots=True)
class TrainerView:
    """A trainer, and what is known of it.

    ``placed`` are its elements by node: running, or released and about to run there. ``spare`` can
    be released. ``surplus`` run, or wait, on nodes that belong to others.
    """

    trainer: Trainer
    state: TrainerState
    placed: Mapping[str, ElementId]
    spare: tuple[ElementId, ...]
    surplus: tuple[ElementId, ...] = ()

    @property
    def array(self) -> int:
        """The id of its job array."""
        return self.trainer.array

    @property
    def finishing(self) -> bool:
        """Whether an element has ended well: the others are about to."""
        return self.state.over == FINISHED

    @property
    def over(self) -> bool:
        """Whether it is not run any more."""
        return self.state.over is not None

    @property
    def abandoned(self) -> bool:
        """Whether its owner has cancelled all of it, except elements that were just brought back.

        scancel skips failed elements, so that these would live on alone. An element that failed
        later than that was not skipped: its owner had cancelled some of the others only.
        """
        elements = self.trainer.elements
        cancelled = [one for one in elements if one.state is ElementState.CANCELLED]
        left = (self.state.of(one.id.task) for one in elements if not one.state.over)
        if not cancelled or any(record.phase is not Phase.REVIVED for record in left):
            return False
        cancelled_s = max(self.state.of(one.id.task).since_s for one in cancelled)
        failed = self.within(Phase.FAILED, Phase.UNLAUNCHED, Phase.REVIVED)
        return all(record.since_s <= cancelled_s for _, record in failed)

    def rests(self, rested_s: float) -> bool:
        """Whether it could grow if its elements had not ended after ``rested_s`` (Unix seconds)."""
        if self.spare or self.over or self.state.settled:
            return False
        ended = self.within(Phase.HELD, Phase.REVIVED, Phase.RECLAIMED)
        return any(record.since_s > rested_s for _, record in ended)

    def is_of(self, trainer: Trainer, state: TrainerState) -> bool:
        """Whether it was made from just these, and time alone changes nothing about them."""
        return self.trainer is trainer and self.state is state and state.settled

    @property
    def live(self) -> bool:
        """Whether anything of it runs, ends, or is about to start."""
        return bool(self.placed) or any(self.within(Phase.RUNNING, Phase.LEAVING, Phase.ENDING))

    def within(self, *phases: Phase) -> Iterator[tuple[ElementId, ElementRecord]]:
        """Yield its elements in these phases."""
        return (
            (ElementId(self.array, task), record)
            for task, record in sorted(self.state.elements.items())
            if record.phase in phases
        )

    def ids(self, *phases: Phase) -> tuple[ElementId, ...]:
        """Return its elements in these phases."""
        return tuple(id_ for id_, _ in self.within(*phases))

    def up(self) -> list[Element]:
        """Return its running elements as Slurm has them."""
        tasks = {self.placed[node].task for node in self.running()}
        return [one for one in self.trainer.elements if one.id.task in tasks]

    def running(self) -> dict[str, ElementRecord]:
        """Return the records of its running elements by their nodes."""
        return {
            node: record
            for node, id_ in self.placed.items()
            if (record := self.state.of(id_.task)).phase is Phase.RUNNING
        }


def views_of(
    trainers: Iterable[tuple[Trainer, TrainerState]],
    ordinary_nodes: frozenset[str] = frozenset(),
    rested_s: float = math.inf,
    last: Mapping[int, TrainerView] = MappingProxyType({}),
) -> tuple[TrainerView, ...]:
    """Sort the trainers' elements; each node belongs to one element only.

    Ordinary jobs come first, then running elements, then released ones. Of two that run, the first
    one there wins. Only elements that ended before ``rested_s`` (Unix seconds) can be released.
    ``last`` views (by array) are used again if nothing has changed.
    """
    known = list(trainers)
    same = {
        trainer.array: view
        for trainer, state in known
        if (view := last.get(trainer.array)) and view.is_of(trainer, state) and not view.surplus
    }
    if len(same) == len(known) and all(
        ordinary_nodes.isdisjoint(view.placed) for view in same.values()
    ):
        return tuple(same.values())  # most of the time
    owner: dict[str, ElementId] = {}
    running = [
        (record.start_s or 0.0, trainer.array, task, record.node)
        for trainer, state in known
        for task, record in state.elements.items()
        if record.phase is Phase.RUNNING
        and record.node is not None
        and record.node not in ordinary_nodes
    ]
    for _, array, task, node in sorted(running):
        owner.setdefault(node, ElementId(array, task))
    taken = set(ordinary_nodes | owner.keys())
    return tuple(
        view
        if (view := same.get(trainer.array)) and _stands(view, owner)
        else _view(trainer, state, owner, taken, rested_s)
        for trainer, state in known
    )


def _stands(view: TrainerView, owner: Mapping[str, ElementId]) -> bool:
    """Whether its nodes are still its own."""
    return all(owner.get(node) == id_ for node, id_ in view.placed.items())


def _view(
    trainer: Trainer,
    state: TrainerState,
    owner: Mapping[str, ElementId],
    taken: set[str],
    rested_s: float,
) -> TrainerView:
    """Sort one trainer's elements; adds the nodes of their expected starts to ``taken``."""
    placed: dict[str, ElementId] = {}
    surplus: list[ElementId] = []
    released: list[tuple[ElementId, ElementRecord]] = []
    for task, record in sorted(state.elements.items()):
        id_ = ElementId(trainer.array, task)
        if record.phase is Phase.RELEASED:
            released.append((id_, record))
        elif record.phase is Phase.RUNNING and record.node is not None:
            if owner.get(record.node) == id_:
                placed[record.node] = id_
            else:
                surplus.append(id_)
    for id_, record in released:
        node = _expected_on(record, taken)
        if node is None:
            surplus.append(id_)
        else:
            placed[node] = id_
            taken.add(node)
    return TrainerView(trainer, state, placed, _spare(trainer, state, rested_s), tuple(surplus))


def _spare(trainer: Trainer, state: TrainerState, rested_s: float) -> tuple[ElementId, ...]:
    """The elements that can be released, the held ones first: Slurm may still end the others."""
    held: list[ElementId] = []
    reclaimed: list[ElementId] = []
    for element in trainer.elements:
        record = state.of(element.id.task)
        if record.since_s > rested_s:
            continue
        if record.phase in (Phase.HELD, Phase.REVIVED):
            held.append(element.id)
        elif record.phase is Phase.RECLAIMED:
            reclaimed.append(element.id)
    return (*sorted(held), *sorted(reclaimed))


def _expected_on(record: ElementRecord, taken: Set[str]) -> str | None:
    """The node on which a released element will probably start; None if none is left."""
    if record.node is not None and record.node in record.targets and record.node not in taken:
        return record.node
    return min(record.targets - taken, default=None)


def without(view: TrainerView, gone: Set[ElementId]) -> TrainerView:
    """Return the view as if these elements had left already."""
    if gone.isdisjoint(view.placed.values()) and gone.isdisjoint(view.spare):
        return view
    placed = {node: id_ for node, id_ in view.placed.items() if id_ not in gone}
    return replace(view, placed=placed, spare=tuple(id_ for id_ in view.spare if id_ not in gone))
