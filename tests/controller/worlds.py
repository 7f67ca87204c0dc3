"""Small hand-made snapshots of Slurm, for tests of what the controller makes of them."""

from __future__ import annotations

from dataclasses import replace

from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.state.element import ElementRecord, Phase
from bftrainer_slurm.controller.state.picture import Picture
from bftrainer_slurm.controller.state.trainer import TrainerState, advance
from bftrainer_slurm.controller.state.view import TrainerView, views_of
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


def element(task: int, state: ElementState, node: str | None = None, **more: object) -> Element:
    return Element(ElementId(ARRAY, task), state, node, **more)  # type: ignore[arg-type]


def failed(task: int, node: str | None = None) -> Element:
    """An element whose script has run for a while, and failed."""
    return element(task, ElementState.FAILED, node, exit_status=2)


def trainer(
    *elements: Element, min_nodes: int = 1, weight: float = 1.0, minutes: int | None = None
) -> Trainer:
    record = TrainerRecord(min_nodes, max(len(elements), min_nodes), Spec(weight), minutes)
    return Trainer(ARRAY, "digits", "alice", "bftrainer", record, NOW_S - 600, elements)


def released(*nodes: str, since_s: float = NOW_S) -> ElementRecord:
    """The record of an element that was let go on one of these nodes."""
    return ElementRecord(Phase.RELEASED, since_s, nodes[0], targets=frozenset(nodes))


def state_of(of: Trainer, before: TrainerState | None = None, now_s: float = NOW_S) -> TrainerState:
    """The state after a look at a trainer."""
    return advance(before or TrainerState(), of, now_s, keep_s=0.0)[0]


def view_of(of: Trainer, state: TrainerState | None = None) -> TrainerView:
    """What the controller makes of a trainer after a look; ``state`` was before it."""
    (seen,) = views_of([(of, state_of(of, state))])
    return seen


def view(*elements: Element, min_nodes: int = 1, **state: object) -> TrainerView:
    before = TrainerState(**state)  # type: ignore[arg-type]
    return view_of(trainer(*elements, min_nodes=min_nodes), before)


def node(name: str, state: NodeState = NodeState.IDLE, partition: str = "bftrainer") -> Node:
    return Node(name, state, frozenset({partition}))


def snapshot(
    nodes: tuple[Node, ...] = (), trainers: tuple[Trainer, ...] = (), **queue: object
) -> Snapshot:
    fields: dict[str, object] = {"waiting": (), "ordinary_nodes": frozenset()}
    return Snapshot(NOW_S, nodes, Queue(trainers, **(fields | queue)))  # type: ignore[arg-type]


def picture(*views: TrainerView, of: Snapshot | None = None, **known: object) -> Picture:
    seen = of or snapshot()
    seen = replace(seen, queue=replace(seen.queue, trainers=tuple(one.trainer for one in views)))
    return Picture(seen, views, **known)  # type: ignore[arg-type]
