"""Draws numbers in plain characters. Pure.

Values over time become a strip in one line, a throughput curve a table.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bftrainer_slurm.words import number

_BLOCKS, _PLAIN = " ▁▂▃▄▅▆▇█", " .:-=+*%#"  # as many eighths of a character's height
_CURVE_COLUMNS, _MOST_POINTS = 50, 8
_MEASURED, _EXPECTED = "#", "o"


def draws_blocks() -> bool:
    """Return whether stdout can take block characters."""
    try:
        _BLOCKS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def strip(values: Sequence[float], columns: int, *, blocks: bool = True) -> str:
    """Return a line of ``columns`` characters; the highest value fills a character."""
    levels = _BLOCKS if blocks else _PLAIN
    return "".join(levels[one] for one in _eighths(resampled(values, columns)))


def resampled(values: Sequence[float], columns: int) -> list[float]:
    """Return one value for each column: means of neighbours, or values repeated."""
    count = len(values)
    if not count:
        return [0.0] * columns
    found = []
    for column in range(columns):
        begin, end = column * count / columns, (column + 1) * count / columns
        first, last = int(begin), min(count, max(int(begin) + 1, int(end)))
        found.append(sum(values[first:last]) / (last - first))
    return found


def _eighths(values: Sequence[float]) -> list[int]:
    """Return heights in eighths of a character; everything above zero is visible."""
    top = max(values, default=0.0)
    if top <= 0:
        return [0] * len(values)
    return [0 if one <= 0 else max(1, round(8 * one / top)) for one in values]


def curve(points: Sequence[Mapping[str, Any]], unit: str) -> list[str]:
    """Return a heading, and a line for each of at most eight sizes: its rate, also as a bar.

    A point has ``nodes``, its ``rate``, and whether that was ``measured``.
    """
    chosen = _selected_points(points)
    most = max(one["rate"] for one in chosen) or 1.0
    lines = [f"{'nodes':>7} {unit:>11}  {_MEASURED} measured, {_EXPECTED} expected"]
    for one in chosen:
        mark = _MEASURED if one["measured"] else _EXPECTED
        bar = mark * round(_CURVE_COLUMNS * one["rate"] / most)
        lines.append(f"{one['nodes']:>7} {number(one['rate']):>11}  {bar}".rstrip())
    return lines


def _selected_points(points: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return at most eight points: both ends, then measured ones, then others, evenly spaced."""
    if len(points) <= _MOST_POINTS:
        return list(points)
    inner = points[1:-1]
    room = _MOST_POINTS - 2
    kept = _evenly_spaced([one for one in inner if one["measured"]], room)
    kept += _evenly_spaced([one for one in inner if not one["measured"]], room - len(kept))
    return [points[0], *sorted(kept, key=lambda one: one["nodes"]), points[-1]]


def _evenly_spaced(points: list[Mapping[str, Any]], count: int) -> list[Mapping[str, Any]]:
    if len(points) <= count:
        return points
    return [points[len(points) * place // count] for place in range(count)]
