"""Formats text for a terminal: width, tables, and colour if it is wanted."""

from __future__ import annotations

import math
import os
import shutil
import sys
import textwrap
import time
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import click

_IN_A_PIPE = 100  # columns


class Heading(str):
    """A line that a terminal shows in bold."""


def width() -> int:
    """Return the number of columns of the terminal."""
    if not sys.stdout.isatty():
        return _IN_A_PIPE
    return max(40, shutil.get_terminal_size((80, 24)).columns)


def styled(text: str, **style: Any) -> str:
    """Return text in colour or bold; plain in a pipe, or if NO_COLOR is set (no-color.org)."""
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    return click.style(text, **style)


def _cut(text: str, columns: float) -> str:
    """Return as much of a text as fits; characters of East Asia take two columns, accents none."""
    room = columns
    for place, char in enumerate(text):
        room -= _columns(char)
        if room < 0:
            return text[:place]
    return text


def _text_width(text: str) -> int:
    """Return how many columns a text takes."""
    return sum(map(_columns, text))


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def table(rows: Sequence[Sequence[str]], spare: Sequence[int] = ()) -> list[str]:
    """Return rows as lines, column below column; the first of them is a heading.

    If they do not fit a terminal, ``spare`` columns are left out, in this order.
    """
    room = width() if sys.stdout.isatty() else math.inf
    widths = [max(map(_text_width, column)) for column in zip(*rows, strict=True)]
    kept, going = list(range(len(widths))), list(spare)
    while going and sum(widths[one] + 2 for one in kept) - 2 > room:
        kept.remove(going.pop(0))
    padded = (
        "  ".join(row[one] + " " * (widths[one] - _text_width(row[one])) for one in kept)
        for row in rows
    )
    heading, *lines = (_cut(line.rstrip(), room) for line in padded)
    return [Heading(heading), *lines]


def on_one_screen(lines: Iterable[str]) -> list[str]:
    """Return the first lines, as many as a terminal shows; a long line takes several rows."""
    columns, rows = shutil.get_terminal_size((80, 24))
    shown: list[str] = []
    taken = 1  # the cursor's row
    for line in lines:
        taken += max(1, math.ceil(_text_width(line) / columns))
        if taken > rows:
            break
        shown.append(line)
    return shown


def date(seconds: float) -> str:
    """Return a Unix time as people read it, in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def wrapped(text: str, indent: int) -> list[str]:
    """Return text in lines that fit, all of them indented."""
    margin = " " * indent
    return textwrap.wrap(
        text, width(), initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False
    )
