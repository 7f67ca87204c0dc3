"""What a turn can decide: actions, which ``act`` carries out, and headroom for ordinary jobs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from bftrainer_slurm.model import ElementId, Part, Place, TimeLimit, nodes_of


@dataclass(frozen=True, slots=True)
class Grow:
    """Let elements of one trainer start, one in each of ``places``; Slurm chooses which.

    ``others`` are the rest of the partition's nodes, ``excluded`` those that its user excluded.
    ``first`` is true if nothing of the trainer is alive: it then begins a new rendezvous. ``limit``
    is the time limit to ask for. ``finished``: the training has ended well, and these end at once.
    ``new``: the trainer has never had a node. ``part`` is what each takes of its node, None
    for what it asks for.
    """

    elements: tuple[ElementId, ...]
    places: frozenset[Place]
    others: frozenset[str]
    first: bool
    limit: TimeLimit | None = None
    excluded: frozenset[str] = frozenset()
    finished: bool = False
    new: bool = False
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class EndAt:
    """Set the time limits of running elements of one trainer to end at this time (Unix seconds)."""

    elements: tuple[ElementId, ...]
    end_s: float


@dataclass(frozen=True, slots=True)
class _OfElements:
    """An action on elements of one trainer; ``why`` is for the log."""

    elements: tuple[ElementId, ...]
    why: str


class Shrink(_OfElements):
    """End running elements, and hold them."""


class Hold(_OfElements):
    """Hold pending elements that are not held."""


class Trim(_OfElements):
    """Cancel held elements; the trainer goes on with the others."""


class Revive(_OfElements):
    """Hold elements that have failed, so that they can start again."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the rest of a trainer that has finished, or is given up."""

    array: int
    why: str


@dataclass(frozen=True, slots=True)
class Label:
    """Write the comment of all elements of a trainer again, which its user has replaced."""

    elements: tuple[ElementId, ...]
    comment: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Write a line into the output of a running element, the only one of ``elements``."""

    elements: tuple[ElementId, ...]
    text: str


Action = Grow | Shrink | Revive | Hold | EndAt | Cancel | Trim | Label | Tell


def array_of(action: Action) -> int:
    """Return which trainer an action is about."""
    return action.array if isinstance(action, Cancel) else action.elements[0].array


_VERBS: dict[type[Action], str] = {
    Shrink: "shrink",
    Hold: "hold",
    Cancel: "cancel the rest of",
    EndAt: "limit",
    Trim: "cancel",
    Revive: "bring back",
    Grow: "grow",
    Label: "write the comment again of",
    Tell: "tell",
}


def describe(action: Action) -> str:
    """Describe an action in a few words, for the log."""
    verb = _VERBS[type(action)]
    if isinstance(action, Cancel):
        return f"{verb} {action.array}: {action.why.partition(chr(10))[0]}"
    names = ", ".join(map(str, action.elements))
    match action:
        case Grow(_, places, part=part):
            of = f"{part.gpus} GPUs of " if part else ""
            return f"{verb} {names} on {of}{', '.join(sorted(nodes_of(places)))}"
        case EndAt(_, end_s):
            return f"{verb} {names} to {time.strftime('%H:%M:%S', time.localtime(end_s))}"
        case Tell(_, text) | Label(_, text):
            return f"{verb} {names}: {text}"
    return f"{verb} {names}: {action.why}"


@dataclass(frozen=True, slots=True)
class Headroom:
    """Nodes for jobs that no pass has judged: ``idle`` ones, and nodes of trainers to ``vacate``.

    Where jobs share nodes, it is ``units`` of each node instead, and ``elements`` that leave. The
    ``idle`` ones are then those on which nobody is yet: no trainer has one of them for itself.
    """

    idle: frozenset[str] = frozenset()
    vacate: frozenset[str] = frozenset()
    units: Mapping[str, int] = field(default_factory=dict)
    elements: frozenset[ElementId] = frozenset()
