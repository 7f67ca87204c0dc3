"""Waiting for something to become true."""

from __future__ import annotations

import time
from collections.abc import Callable

_SHORTEST_S, _LONGEST_S = 0.05, 0.5  # between looks
_OF_ALL = 50  # a pause is at least this part of the wait so far
_OF_LOOK = 3  # and at least as long as so many looks: most looks start a program


def wait_until(
    predicate: Callable[[], object],
    timeout_s: float = 300.0,
    otherwise: str = "not true",
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Return soon after ``predicate`` is true; ``pause`` waits some seconds between two looks.

    At first there are twenty looks a second. There are fewer if a look takes long or the wait is
    long: two a second at least, the looks themselves not counted.

    Raises:
        TimeoutError: it did not become true in time; the message begins with ``otherwise``.
    """
    began_s = look_s = time.monotonic()
    while not predicate():
        now_s = time.monotonic()
        if now_s > began_s + timeout_s:
            raise TimeoutError(f"{otherwise} within {timeout_s:g} s")
        wanted_s = max(_OF_LOOK * (now_s - look_s), (now_s - began_s) / _OF_ALL)
        pause(min(max(wanted_s, _SHORTEST_S), _LONGEST_S))
        look_s = time.monotonic()
