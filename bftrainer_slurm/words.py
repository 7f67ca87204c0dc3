"""Numbers in sentences: ``1 node``, ``2 nodes``, ``1,000 nodes are``; and in names."""

from __future__ import annotations

import re
from collections.abc import Sequence

ARE, HAVE = ("is", "are"), ("has", "have")


def counted(count: int, noun: str, verb: tuple[str, str] | None = None) -> str:
    """Return so many of a thing whose plural takes an s, and what they do."""
    does = "" if verb is None else f" {verb[count != 1]}"
    return f"{count:,} {noun}{'' if count == 1 else 's'}{does}"


def either(numbers: Sequence[int]) -> str:
    """Return numbers in words: ``1, 2 or 4``."""
    *others, last = map(str, numbers)
    return f"{', '.join(others)} or {last}" if others else last


def natural(name: str) -> list[str]:
    """Return what names are sorted by, so that n2 comes before n10."""
    parts = re.split("([0-9]+)", name)
    return [part.zfill(20) if part.isdigit() else part for part in parts]
