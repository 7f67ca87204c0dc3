"""Numbers and times in sentences: ``1 node``, ``1,000 nodes are``, ``12 min``; and in names."""

from __future__ import annotations

import re
from collections.abc import Sequence

ARE, HAVE = ("is", "are"), ("has", "have")
_NAMED = 5  # in a sentence


def counted(count: int, noun: str, verb: tuple[str, str] | None = None) -> str:
    """Return so many of a thing whose plural takes an s, and what they do."""
    does = "" if verb is None else f" {verb[count != 1]}"
    return f"{count:,} {noun}{'' if count == 1 else 's'}{does}"


def either(numbers: Sequence[int]) -> str:
    """Return numbers in words: ``1, 2 or 4``."""
    *others, last = map(str, numbers)
    return f"{', '.join(others)} or {last}" if others else last


def some(names: Sequence[str]) -> str:
    """Name the first five of these, and say how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def natural(name: str) -> list[str]:
    """Return what names are sorted by, so that n2 comes before n10."""
    parts = re.split("([0-9]+)", name)
    return [part.zfill(20) if part.isdigit() else part for part in parts]


def number(value: float) -> str:
    """Return a number in few characters: ``0.123``, ``12.3``, ``1,234``, ``1.23e+10``."""
    return f"{value:,.0f}" if 100 <= abs(value) < 1e10 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """Return a time as people say it: ``1.8 s``, ``90 s``, ``12 min``, ``5.2 h``, ``3.1 days``."""
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    hours = seconds / 3600
    if hours < 2:
        return f"{seconds / 60:.0f} min"
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"
