"""What the last reading of Slurm means: which trainer sits where, which nodes are to be had.

Pure functions of an observation and of the little that the controller remembers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bftrainer_slurm.controller.actions import Shrink
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.model import (
    Element,
    ElementId,
    ElementState,
    Node,
    NodeState,
    Queue,
    Reservation,
    Trainer,
)


@dataclass(frozen=True, slots=True)
class Observation:
    """One reading of Slurm. ``nodes`` and ``reservations`` may be older than ``queue``."""

    time_s: float
    nodes: tuple[Node, ...]
    queue: Queue
    reservations: tuple[Reservation, ...] = ()


@dataclass(frozen=True, slots=True)
class Release:
    """An element that was let go on ``node`` and has not been seen running there yet."""

    node: str | None
    time_s: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Why Slurm does not start a trainer's elements on any node, and when to try again."""

    reason: str
    until_s: float


@dataclass(frozen=True, slots=True)
class Suspect:
    """A node that is left alone until then, after so many failures in a row on it."""

    node: str
    after: int
    until_s: float


@dataclass(frozen=True, slots=True)
class Failing:
    """A trainer's failures in a row, without progress between them.

    ``nodes`` are those on which it failed, as far as can be said; ``on_node`` of the failures in a
    row were on ``node``, the last ones. ``text`` is what the script said last.
    """

    since_s: float
    last_s: float = 0.0
    count: int = 0
    nodes: tuple[str, ...] = ()
    node: str = ""
    on_node: int = 0
    text: str = ""
    trained: bool = False
    suspect: Suspect | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """What Slurm does not tell, and what may be lost with the controller without harm.

    ``avoid`` holds nodes that are left alone, and until when; ``refused`` those that a trainer
    cannot have, Slurm says; ``revived`` the failed elements that were just brought back;
    ``paused_until`` when a trainer that changed its size trains again; ``trained_s`` when it last
    had a node.
    """

    releases: Mapping[ElementId, Release] = field(default_factory=dict)
    avoid: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    waits: Mapping[int, Wait] = field(default_factory=dict)
    finishing_since: Mapping[int, float] = field(default_factory=dict)
    failing: Mapping[int, Failing] = field(default_factory=dict)
    patient_until: Mapping[int, float] = field(default_factory=dict)
    revived: Mapping[int, frozenset[ElementId]] = field(default_factory=dict)
    given_up: Mapping[int, str] = field(default_factory=dict)
    cancelled_s: Mapping[int, float] = field(default_factory=dict)
    paused_until: Mapping[int, float] = field(default_factory=dict)
    trained_s: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrainerView:
    """A trainer as the controller sees it now."""

    trainer: Trainer
    placed: Mapping[str, ElementId]  # by node: running, or let go and about to run there
    spare: tuple[ElementId, ...]  # can be let go: reclaimed ones first, they cost one RPC less
    finishing: bool  # an element has ended well, the others are about to

    @property
    def array(self) -> int:
        """The id of its job array."""
        return self.trainer.array

    def with_state(self, *states: ElementState) -> Iterator[Element]:
        """Yield its elements in these states."""
        return (element for element in self.trainer.elements if element.state in states)

    @property
    def live(self) -> bool:
        """Whether anything of it runs, ends, or is about to start."""
        return bool(self.placed) or any(self.with_state(ElementState.RUNNING, ElementState.ENDING))


def view_trainer(trainer: Trainer, memory: Memory) -> TrainerView:
    """Sort a trainer's elements."""
    placed: dict[str, ElementId] = {}
    delayed, held = [], []
    for element in sorted(trainer.elements, key=lambda element: element.id):
        if element.state is ElementState.RUNNING and element.node is not None:
            placed[element.node] = element.id
        elif element.state is ElementState.PENDING:
            release = memory.releases.get(element.id)
            if release is not None and release.node is not None:
                placed.setdefault(release.node, element.id)
        elif element.state is ElementState.DELAYED:
            delayed.append(element.id)
        elif element.state is ElementState.HELD:
            held.append(element.id)
    finishing = any(element.state is ElementState.COMPLETED for element in trainer.elements)
    return TrainerView(trainer, placed, (*delayed, *held), finishing)


def without(view: TrainerView, leaving: Sequence[Shrink]) -> TrainerView:
    """Return the view as if the elements that these end had left already."""
    gone = {element for action in leaving for element in action.elements}
    placed = {node: element for node, element in view.placed.items() if element not in gone}
    return replace(view, placed=placed)


def free_nodes(
    observation: Observation, views: tuple[TrainerView, ...], memory: Memory, settings: Settings
) -> frozenset[str]:
    """Return the nodes that are idle, nobody's, and in a hole that is long enough.

    A node that was busy when nodes were last read counts as idle once no job is on it.
    """
    now_s = observation.time_s
    taken = set(observation.queue.ordinary_nodes)
    for view in views:
        taken.update(view.placed)
        taken.update(
            element.node for element in view.with_state(ElementState.ENDING) if element.node
        )
    soon_s = now_s + settings.min_hole_s
    for job in observation.queue.waiting:
        if job.expected_start_s is not None and job.expected_start_s < soon_s:
            taken.update(job.expected_nodes)
    for reservation in observation.reservations:
        if reservation.start_s < soon_s and reservation.end_s > now_s:
            taken.update(reservation.nodes)
    return frozenset(
        name
        for name in in_service(observation, settings)
        if name not in taken and memory.avoid.get(name, 0.0) <= now_s
    )


def in_service(observation: Observation, settings: Settings) -> frozenset[str]:
    """Return the nodes of the trainers' partition that are in use, or could be."""
    # Asked once, not of each node: there may be 10,000, and this is needed at every turn.
    usable = tuple(state for state in NodeState if state.in_service)
    return frozenset(
        node.name
        for node in observation.nodes
        if node.state in usable and settings.partition in node.partitions
    )


def hardware_of(observation: Observation, settings: Settings) -> dict[str, str]:
    """Return each node's kind of hardware: the first of the admin's features that it has."""
    if not settings.hardware:
        return {}
    return {
        node.name: next((kind for kind in settings.hardware if kind in node.features), "")
        for node in observation.nodes
    }
