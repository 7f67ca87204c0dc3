"""How soon a controller has dealt with a change: what each change asks for, and its last action.

A change is done when each node that became idle was given to an element, and each element that was
reclaimed is held again or released. What another change took back meanwhile does not count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from bftrainer_slurm.model import ElementId


@dataclass(slots=True)
class Change:
    """One change of the cluster at ``time_s``; ``left`` is what has not been dealt with yet."""

    time_s: float
    size: int
    left: set[ElementId | int] = field(default_factory=set)
    last_s: float | None = None  # when an action last dealt with a part of it

    @property
    def took_s(self) -> float | None:
        """Seconds from the change to its last action; None: there was none, or some is left."""
        return None if self.last_s is None or self.left else self.last_s - self.time_s


class Changes:
    """All changes, in their order. Nodes are numbers."""

    def __init__(self) -> None:
        self.all: list[Change] = []
        self._of: dict[ElementId | int, Change] = {}

    def begin(self, concerned: Collection[ElementId | int], now_s: float) -> None:
        """Note a change that concerns these nodes or elements."""
        self.overtaken(concerned)
        if concerned:
            change = Change(now_s, len(concerned), set(concerned))
            self.all.append(change)
            self._of.update(dict.fromkeys(concerned, change))

    def acted(self, concerned: Iterable[ElementId | int], now_s: float) -> None:
        """Note that the controller has just done something about these."""
        for change in self._without(concerned):
            change.last_s = now_s

    def overtaken(self, concerned: Iterable[ElementId | int]) -> None:
        """Note that the controller cannot deal with these any more."""
        self._without(concerned)

    def _without(self, concerned: Iterable[ElementId | int]) -> list[Change]:
        found = []
        for one in concerned:
            change = self._of.pop(one, None)
            if change is not None:
                change.left.discard(one)
                found.append(change)
        return found
