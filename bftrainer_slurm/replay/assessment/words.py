"""Figures in words: durations, times, amounts."""

from __future__ import annotations

import math
from datetime import datetime, tzinfo

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_UNITS = ((86400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def duration(seconds: float) -> str:
    """Write a duration in the largest unit that fits into it, such as ``1.5 h``."""
    if not math.isfinite(seconds):
        return "-"
    for size, unit in _UNITS:
        if seconds >= size:
            amount = f"{seconds / size:.1f}".removesuffix(".0")
            return f"{amount} {'day' if (amount, unit) == ('1', 'days') else unit}"
    return f"{seconds:g} s"


def between(from_s: float, to_s: float) -> str:
    """Write a range of durations."""
    if from_s <= 0:
        return f"under {duration(to_s)}"
    return (
        f"{duration(from_s)} or more"
        if math.isinf(to_s)
        else f"{duration(from_s)} to {duration(to_s)}"
    )


def moment(time_s: float, zone: tzinfo) -> str:
    """Write a date, a time of day and its zone."""
    return datetime.fromtimestamp(time_s, zone).strftime("%Y-%m-%d %H:%M %Z")


def amount(number: float) -> str:
    """Write a number with useful digits: 12,345 or 12.3 or 0.12."""
    if not math.isfinite(number):
        return "-"
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def whole(number: float) -> str:
    """Write a number without a fraction: 3,356,400."""
    return f"{number:,.0f}" if math.isfinite(number) else "-"


def percent(share: float) -> str:
    """Write a share as a percentage."""
    return f"{100 * share:.1f} %" if math.isfinite(share) else "-"


def printable(text: str) -> str:
    """Replace characters that are not printable; the result still needs escaping for HTML."""
    return "".join(char if char.isprintable() else "?" for char in text)
