"""Tables of text, for terminals and in Markdown. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

Row = TypeVar("Row")


def table(rows: Iterable[Sequence[str]], align: str = "<") -> str:
    """Return rows in columns; ``align`` has ``<`` or ``>`` for the first ones, others are ``>``."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = align.ljust(len(widths), ">")
    return "\n".join(
        "  ".join(
            f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)
        ).rstrip()
        for row in rows
    )


def columns(
    rows: Iterable[Row], cells: Sequence[tuple[str, Callable[[Row], str]]], align: str = "<"
) -> str:
    """Return a table; each of ``cells`` is the head of a column, and its text for a row."""
    heads = [head for head, _ in cells]
    return table([heads, *([cell(row) for _, cell in cells] for row in rows)], align)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; its first column is aligned to the left."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    lines.insert(1, "|---" + "|---:" * (len(head) - 1) + "|")
    return "\n".join(lines)
