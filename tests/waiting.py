"""Waiting for something to become true, with a generous bound that shows a hang."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(predicate: Callable[[], object], timeout_s: float = 120.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not true within {timeout_s} s")
        time.sleep(0.05)
