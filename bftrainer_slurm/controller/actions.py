"""What a turn of the controller can decide to do; carried out by ``act``."""

from __future__ import annotations

from dataclasses import dataclass

from bftrainer_slurm.model import ElementId


@dataclass(frozen=True, slots=True)
class Grow:
    """Let an element start on a node."""

    element: ElementId
    node: str
    first: bool  # nothing of the trainer is alive: it begins a new rendezvous
    minutes: int | None = None  # the time limit that its user asked for


@dataclass(frozen=True, slots=True)
class Shrink:
    """End running elements of one trainer and hold them; ``why`` is for the log and the history."""

    elements: tuple[ElementId, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Revive:
    """Hold elements of one trainer that have failed, so that they can start again."""

    elements: tuple[ElementId, ...]


@dataclass(frozen=True, slots=True)
class Hold:
    """Hold elements of one trainer that wait without being held."""

    elements: tuple[ElementId, ...]


@dataclass(frozen=True, slots=True)
class Lengthen:
    """Set the time limit (minutes since their start) of running elements of one trainer."""

    elements: tuple[ElementId, ...]
    minutes: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel what is left of a trainer: it has finished, or is given up."""

    array: int
    why: str


Action = Grow | Shrink | Revive | Hold | Lengthen | Cancel
