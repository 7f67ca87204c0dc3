"""Numbers in sentences: ``1 node``, ``2 nodes``, ``1,000 nodes``."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, noun: str) -> str:
    """Return so many of a thing whose plural takes an s."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def either(numbers: Sequence[int]) -> str:
    """Return numbers in words: ``1, 2 or 4``."""
    *others, last = map(str, numbers)
    return f"{', '.join(others)} or {last}" if others else last
