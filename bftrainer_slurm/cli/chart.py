"""Numbers over time in plain characters: a strip in one line, or bars with their scale. Pure."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bftrainer_slurm.cli.plot import number

_BLOCKS, _PLAIN = " ▁▂▃▄▅▆▇█", " .:-=+*%#"  # as many eighths of a character's height
_ROWS = 5
MARGIN = 12  # columns before bars


def draws_blocks() -> bool:
    """Return whether stdout can take block characters."""
    try:
        _BLOCKS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def strip(values: Sequence[float], columns: int, *, blocks: bool = True) -> str:
    """Return a line of so many characters; the highest value fills one."""
    levels = _BLOCKS if blocks else _PLAIN
    return "".join(levels[one] for one in _eighths(fitted(values, columns), 1))


def bars(values: Sequence[float], columns: int, unit: str, *, blocks: bool = True) -> list[str]:
    """Return bars in five lines of so many columns, their scale and unit in ``MARGIN`` before."""
    levels, drawn = _BLOCKS if blocks else " " + "#" * 8, fitted(values, columns)
    labels = {_ROWS - 1: number(max(values, default=0.0)), _ROWS // 2: unit, 0: "0"}
    lines = []
    heights = _eighths(drawn, _ROWS)
    for row in range(_ROWS - 1, -1, -1):
        cells = (levels[min(8, max(0, height - 8 * row))] for height in heights)
        lines.append(f"{labels.get(row, ''):>{MARGIN - 2}} |{''.join(cells)}".rstrip())
    return lines


def fitted(values: Sequence[float], columns: int) -> list[float]:
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


def _eighths(values: Sequence[float], rows: int) -> list[int]:
    """Return heights in eighths of a row; everything above zero is visible."""
    top = max(values, default=0.0)
    if top <= 0:
        return [0] * len(values)
    whole = 8 * rows
    return [0 if one <= 0 else min(whole, max(1, round(whole * one / top))) for one in values]
