"""Small hand-made snapshots of Slurm, and controllers, for tests of what these make of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from bftrainer_slurm.controller.act import Groups
from bftrainer_slurm.controller.loop import Controller, Dependencies
from bftrainer_slurm.controller.observe.snapshot import NodeTable, Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.bad_nodes import LATE, Evidence
from bftrainer_slurm.controller.state.cluster import ClusterView
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.phases import ElementRecord, Phase
from bftrainer_slurm.controller.state.trainer_state import TrainerState, advance
from bftrainer_slurm.controller.state.view import TrainerView, views_of
from bftrainer_slurm.keeper.protocol import Note, NoteKind, NumberedNote
from bftrainer_slurm.model import (
    Element,
    ElementId,
    ElementState,
    Node,
    NodeState,
    Queue,
    Trainer,
)
from bftrainer_slurm.spec import Spec, TrainerRecord

NOW_S = 1_000_000.0
ARRAY = 12


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def started(
    slurm: Any,
    planner: Any,
    history: History,
    clock: Callable[[], float],
    settings: Settings,
    groups: Groups | None = None,
    notes_arrive: Callable[[], bool] = lambda: False,
) -> Controller:
    """A controller that has just been started; nothing holds up its commands."""
    deps = Dependencies(
        gateway=slurm,
        planner=planner,
        history=history,
        groups=groups or Groups(),
        clock=clock,
        mine=lambda _: True,
        notes_arrive=notes_arrive,
        most_actions=math.inf,
    )
    return Controller(deps, settings)


def cases(names: str, **rows: object) -> pytest.MarkDecorator:
    """A test of each row, which its name describes."""
    return pytest.mark.parametrize(names, rows.values(), ids=rows)


def element(
    task: int, said: ElementState | str, node: str | None = None, array: int = ARRAY, **more: object
) -> Element:
    """An element in a state, which may be said with its node: "running n1"."""
    word, *on = said.name.split() if isinstance(said, ElementState) else said.split()
    state = ElementState[word.upper()]
    return Element(ElementId(array, task), state, *(on or [node]), **more)  # type: ignore[arg-type]


def failed(task: int, node: str | None = None) -> Element:
    """An element whose script has run for a while, and failed."""
    return element(task, "failed", node, exit_status=2)


def note(
    kind: NoteKind,
    time_s: float = NOW_S,
    task: int = 0,
    node: str = "",
    *,
    array: int = ARRAY,
    text: str = "",
    number: int = 1,
    **measures: float,
) -> NumberedNote:
    """What a member of a trainer said, as the keeper tells it."""
    told = Note(kind, array, task, node, tuple(measures.items()), text)
    return NumberedNote(number, time_s, told)


def trainer(
    *elements: Element | str,
    min_nodes: int = 1,
    weight: float = 1.0,
    minutes: int | None = None,
    array: int = ARRAY,
) -> Trainer:
    """A trainer of these elements; of which just the state is said, those have tasks from 0 on."""
    own = tuple(
        element(task, one, array=array)
        if isinstance(one, str)
        else replace(one, id=ElementId(array, one.id.task))
        for task, one in enumerate(elements)
    )
    record = TrainerRecord(min_nodes, max(len(own), min_nodes), Spec(weight), minutes)
    return Trainer(array, "digits", "alice", "bftrainer", record, NOW_S - 600, own)


def named(nodes: str) -> frozenset[str]:
    """These nodes."""
    return frozenset(nodes.split())


def bad(node: str, until_s: float = NOW_S + 5000) -> tuple[Evidence, ...]:
    """Something went wrong on a node, so that all stay off it."""
    return (Evidence(node, "", 0, LATE, until_s),)


def until(evidence: Iterable[Evidence]) -> dict[str, float]:
    """Until when there is evidence about nodes."""
    return {one.node: one.until_s for one in evidence}


def released(*nodes: str, since_s: float = NOW_S) -> ElementRecord:
    """The record of an element that was let go on one of these nodes."""
    return ElementRecord(Phase.RELEASED, since_s, targets=named(" ".join(nodes)))


def state_of(of: Trainer, before: TrainerState | None = None, now_s: float = NOW_S) -> TrainerState:
    """The state after a look at a trainer."""
    return advance(before or TrainerState(), of.array, of.elements, now_s, keep_s=0.0)[0]


def view_of(of: Trainer, state: TrainerState | None = None) -> TrainerView:
    """What the controller makes of a trainer after a look; ``state`` was before it."""
    (seen,) = views_of([(of, state_of(of, state))])
    return seen


def view(
    *elements: Element | str, min_nodes: int = 1, array: int = ARRAY, **state: object
) -> TrainerView:
    before = TrainerState(**state)  # type: ignore[arg-type]
    return view_of(trainer(*elements, min_nodes=min_nodes, array=array), before)


def node(name: str, state: NodeState = NodeState.IDLE, partition: str = "bftrainer") -> Node:
    return Node(name, state, frozenset(partition.split()))


def snapshot(
    nodes: Iterable[Node] | str = (), trainers: tuple[Trainer, ...] = (), **queue: object
) -> Snapshot:
    """One reading of Slurm; of nodes just the names may be said."""
    read = map(node, nodes.split()) if isinstance(nodes, str) else nodes
    seen = read if isinstance(read, NodeTable) else NodeTable(read)
    fields: dict[str, object] = {"waiting": (), "ordinary_nodes": frozenset()}
    return Snapshot(NOW_S, seen, Queue(trainers, **(fields | queue)))  # type: ignore[arg-type]


def cluster(*views: TrainerView, of: Snapshot | None = None, **known: object) -> ClusterView:
    seen = of or snapshot()
    seen = replace(seen, queue=replace(seen.queue, trainers=tuple(one.trainer for one in views)))
    return ClusterView(seen, views, **known)  # type: ignore[arg-type]
