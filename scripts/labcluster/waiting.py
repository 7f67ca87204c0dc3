"""Waiting for something to become true."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(
    predicate: Callable[[], object],
    timeout_s: float = 120.0,
    otherwise: str = "not true",
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Return as soon as ``predicate`` is true; ``pause`` lets so many seconds pass between looks.

    Raises:
        TimeoutError: it was not in time; the message begins with ``otherwise``.
    """
    deadline_s = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{otherwise} within {timeout_s:g} s")
        pause(0.05)
