"""What a fault is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from scripts.chaos_suite.world import World

Undo = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Injected:
    """A fault that is under way. ``undo`` mends it after ``lasts_s`` seconds.

    ``violations`` are those that were seen while it was injected.
    """

    detail: str
    lasts_s: float = 0.0
    undo: Undo = field(default=lambda: None)
    violations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault; ``inject`` chooses by the world's own seeded chance."""

    name: str
    what: str
    inject: Callable[[World], Injected]


class CannotInjectError(Exception):
    """There is nothing to hit just now; the message says what is missing."""
