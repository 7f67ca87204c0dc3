"""What a turn can decide: actions, which ``act`` executes, and headroom for ordinary jobs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from bftrainer_slurm.model import ElementId, Part, Place, TimeLimit, nodes_of


@dataclass(frozen=True, slots=True)
class Grow:
    """Release elements of one trainer, one for each of ``places``; Slurm chooses which goes where.

    If ``first``, no element of the trainer is alive, and the release begins a new rendezvous.
    """

    elements: tuple[ElementId, ...]
    places: frozenset[Place]
    others: frozenset[str]  # all other nodes of the partition
    first: bool
    limit: TimeLimit | None = None  # the time limit to ask for
    excluded: frozenset[str] = frozenset()  # nodes that the user excluded
    finished: bool = False  # the training has ended successfully, so these elements end at once
    new: bool = False  # the trainer has never had a node
    part: Part | None = None  # what each element takes of its node; None: what it asks for


@dataclass(frozen=True, slots=True)
class EndAt:
    """Set the time limits of a trainer's running elements to end at ``end_s`` (Unix seconds)."""

    elements: tuple[ElementId, ...]
    end_s: float


@dataclass(frozen=True, slots=True)
class _OfElements:
    """An action on elements of one trainer; ``why`` is for the log."""

    elements: tuple[ElementId, ...]
    why: str


class Shrink(_OfElements):
    """Requeue and hold running elements."""


class Hold(_OfElements):
    """Hold pending elements that are not held."""


class Trim(_OfElements):
    """Cancel held elements; the trainer keeps the others."""


class Revive(_OfElements):
    """Requeue and hold elements that have failed, so that they can start again."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the remaining elements of a trainer that has finished or was given up."""

    array: int
    why: str


@dataclass(frozen=True, slots=True)
class Label:
    """Restore the comment of all elements of a trainer, after its user has overwritten it."""

    elements: tuple[ElementId, ...]
    comment: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Write a line into the output of a running element; ``elements`` has exactly one."""

    elements: tuple[ElementId, ...]
    text: str


Action = Grow | Shrink | Revive | Hold | EndAt | Cancel | Trim | Label | Tell


def array_of(action: Action) -> int:
    """Return the array id of an action's trainer."""
    return action.array if isinstance(action, Cancel) else action.elements[0].array


_VERBS: dict[type[Action], str] = {
    Shrink: "shrink",
    Hold: "hold",
    Cancel: "cancel the rest of",
    EndAt: "limit",
    Trim: "cancel",
    Revive: "requeue",
    Grow: "grow",
    Label: "restore the comment of",
    Tell: "notify",
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
    """Nodes for waiting jobs that no backfill pass has tried yet.

    If jobs share nodes, ``units`` and ``elements`` take the place of ``vacate``.
    """

    idle: frozenset[str] = frozenset()  # stay idle; if shared: no trainer gets one as a whole node
    vacate: frozenset[str] = frozenset()  # trainers leave them
    units: Mapping[str, int] = field(default_factory=dict)  # stay free, by shared node
    elements: frozenset[ElementId] = frozenset()  # these leave shared nodes
