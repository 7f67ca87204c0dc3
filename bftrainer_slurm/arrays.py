"""Slurm's notation for the tasks of a job array, read and written: ``0-4,7,9-20:2%3``."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby

_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?\Z")


def parse_tasks(text: str, below: int) -> tuple[int, ...]:
    """Return the tasks of an array expression that are smaller than ``below``, in its order.

    ``%N`` at the end only limits how many tasks run at once. Because of ``below`` an array with
    millions of tasks costs no memory here.

    Raises:
        ValueError: not an array expression.
    """
    ranges = task_ranges(text)
    return tuple(chain.from_iterable(one[: bisect_left(one, below)] for one in ranges))


def task_ranges(text: str) -> list[range]:
    """Return the ranges of an array expression, in its order.

    Raises:
        ValueError: not an array expression.
    """
    ranges: list[range] = []
    for part in text.partition("%")[0].split(","):
        match = _PART.match(part)
        if not match:
            raise ValueError(f"'{text[:80]}' is not an array expression")
        first, last, step = (int(group) if group else None for group in match.groups())
        assert first is not None
        last = first if last is None else last
        ranges.append(range(first, last + 1, step or 1))
    return ranges


def format_tasks(tasks: Iterable[int]) -> str:
    """Return the shortest expression for these tasks: ``0-4,7``."""
    return ",".join(format_ranges(sorted(set(tasks))))


def format_ranges(numbers: Sequence[int], width: int = 0) -> Iterator[str]:
    """Yield ``FIRST-LAST`` for each run of these ascending numbers, or just a lone number."""
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        ends = dict.fromkeys((members[0], members[-1]))
        yield "-".join(f"{end:0{width}}" for end in ends)
