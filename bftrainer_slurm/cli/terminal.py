"""How a terminal is written to: its width, and colour where that is wished."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import click

_IN_A_PIPE = 100  # columns


class Heading(str):
    """A line that a terminal shows in bold."""


def width() -> int:
    """Return how many columns there are."""
    if not sys.stdout.isatty():
        return _IN_A_PIPE
    return max(40, shutil.get_terminal_size((80, 24)).columns)


def styled(text: str, **style: Any) -> str:
    """Return text in colour or bold; plain in a pipe, and where NO_COLOR is set (no-color.org)."""
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    return click.style(text, **style)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows in columns, the first of them a heading; in a terminal no line is broken."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    if sys.stdout.isatty():
        lines = [line[: width()] for line in lines]
    return [Heading(lines[0]), *lines[1:]]


def wrapped(text: str, indent: int) -> list[str]:
    """Return text in lines that fit, all of them indented."""
    margin = " " * indent
    return textwrap.wrap(
        text, width(), initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False
    )
