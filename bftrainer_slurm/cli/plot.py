"""A throughput curve in plain characters: a small plot with the numbers below it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_ROWS = 7
_MOST_COLUMNS = 8
_MEASURED, _EXPECTED = "#", "o"


@dataclass(frozen=True, slots=True)
class Point:
    """What a trainer does on so many nodes, ``measured`` or derived from measurements."""

    nodes: int
    rate: float
    measured: bool


def plot(points: Sequence[Point], unit: str) -> list[str]:
    """Return at most 12 lines; columns are sizes, not to scale."""
    chosen = _chosen(points)
    most = max(one.rate for one in chosen)
    if most <= 0:
        return []
    rates = [number(one.rate) for one in chosen]
    width = 2 + max(len(text) for text in (*rates, str(chosen[-1].nodes)))
    margin = max(len(unit), len("nodes"))
    heights = [round((_ROWS - 1) * one.rate / most) for one in chosen]
    marks = [_MEASURED if one.measured else _EXPECTED for one in chosen]
    lines = []
    for row in range(_ROWS - 1, -1, -1):
        cells = (
            (mark if height == row else " ").rjust(width)
            for mark, height in zip(marks, heights, strict=True)
        )
        lines.append(f"{'':<{margin}} |{''.join(cells)}".rstrip())
    lines.append(f"{'':<{margin}} +{'-' * (width * len(chosen))}")
    for label, texts in (("nodes", [str(one.nodes) for one in chosen]), (unit, rates)):
        lines.append(f"{label:<{margin}}  {''.join(text.rjust(width) for text in texts)}")
    lines.append(f"{'':<{margin}}  {_MEASURED} measured, {_EXPECTED} expected")
    return lines


def number(value: float) -> str:
    """Return a number in few characters."""
    if value >= 1e7:
        return f"{value:.1e}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _chosen(points: Sequence[Point]) -> list[Point]:
    """At most eight: the ends, then measured ones, evenly among them."""
    if len(points) <= _MOST_COLUMNS:
        return list(points)
    inner = points[1:-1]
    measured = [one for one in inner if one.measured]
    others = [one for one in inner if not one.measured]
    room = _MOST_COLUMNS - 2
    kept = _spread(measured, room)
    kept += _spread(others, room - len(kept))
    return [points[0], *sorted(kept, key=lambda one: one.nodes), points[-1]]


def _spread(points: list[Point], count: int) -> list[Point]:
    if len(points) <= count:
        return points
    return [points[len(points) * place // count] for place in range(count)]
