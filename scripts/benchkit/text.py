"""Tables of text, for terminals and in Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(rows: Iterable[Sequence[str]], align: str = "<") -> str:
    """Return rows in columns; ``align`` has ``<`` or ``>`` for the first of them, ``>`` else."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = align.ljust(len(widths), ">")
    return "\n".join(
        "  ".join(
            f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)
        ).rstrip()
        for row in rows
    )


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown, its first column to the left."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    lines.insert(1, "|---" + "|---:" * (len(head) - 1) + "|")
    return "\n".join(lines)
