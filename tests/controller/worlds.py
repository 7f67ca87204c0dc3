"""Small hand-made readings of Slurm, for tests of what the controller makes of them."""

from __future__ import annotations

from bftrainer_slurm.controller.view import Memory, Observation, TrainerView, view_trainer
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


def element(task: int, state: ElementState, node: str | None = None, **times: float) -> Element:
    return Element(ElementId(ARRAY, task), state, node, **times)


def trainer(
    *elements: Element, min_nodes: int = 1, weight: float = 1.0, minutes: int | None = None
) -> Trainer:
    record = TrainerRecord(min_nodes, max(len(elements), min_nodes), Spec(weight), minutes)
    return Trainer(ARRAY, "digits", "alice", "bftrainer", record, NOW_S - 600, elements)


def view(*elements: Element, memory: Memory | None = None, min_nodes: int = 1) -> TrainerView:
    return view_trainer(trainer(*elements, min_nodes=min_nodes), memory or Memory())


def node(name: str, state: NodeState = NodeState.IDLE, partition: str = "bftrainer") -> Node:
    return Node(name, state, frozenset({partition}))


def observation(
    nodes: tuple[Node, ...] = (), trainers: tuple[Trainer, ...] = (), **queue: object
) -> Observation:
    fields: dict[str, object] = {"waiting": (), "ordinary_nodes": frozenset()}
    return Observation(NOW_S, nodes, Queue(trainers, **(fields | queue)))  # type: ignore[arg-type]
