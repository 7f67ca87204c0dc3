"""What a fault is, and how it chooses what it hits."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from tests.chaos.observe import Element, Snapshot
from tests.chaos.world import World

# Injects, yields what it did in words and for how many seconds, and mends it when it goes on.
Course = Generator[tuple[str, float], None, None]
Fault = Callable[[World], Course]
Target = TypeVar("Target")

_WITHIN_S = 20.0  # all may just have been reclaimed


class CannotInjectError(Exception):
    """There is nothing to hit just now; the message says what is missing."""


def chosen(world: World, find: Callable[[Snapshot], Sequence[Target]], what: str) -> Target:
    """Return one of what is found, chosen at random; wait where there is none now.

    Raises:
        CannotInjectError: there is still none after a while.
    """
    found = list[Target]()

    def there() -> bool:
        found.extend(find(world.look()))
        return bool(found)

    if not world.wait_until(there, _WITHIN_S):
        raise CannotInjectError(f"there is no {what}")
    return world.chance.choice(found)


def running(world: World) -> Element:
    return chosen(world, lambda seen: seen.mine("RUNNING"), "running element")
