"""Files without a test that ``-m`` means are not even read, which takes seconds of a core in all.

So a file names its tests' marks itself, as ``mark.NAME``; one that does not is an error.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from itertools import chain, combinations
from pathlib import Path

MARKS = ("slurm", "torch", "once", "newest", "nightly", "frameworks", "load")

_OF_ALL = re.compile(r"^pytestmark = (?:\[.*?\]$|[^\n]*)", re.MULTILINE | re.DOTALL)


@cache
def marks_in(path: Path) -> list[str]:
    """Return the marks that tests in this file may have."""
    text = path.read_text()
    return [mark for mark in MARKS if f"mark.{mark}" in text]


@cache
def marks_of_all(path: Path) -> list[str]:
    """Return the marks that all tests in this file have: those of its ``pytestmark``."""
    found = _OF_ALL.search(path.read_text())
    return [mark for mark in MARKS if found and f"mark.{mark}" in found[0]]


def may_mean(expression: str, some: Collection[str], always: Collection[str] = ()) -> bool:
    """Return whether ``-m`` may mean a test that has ``always`` marks, and any of some others."""
    rest = [mark for mark in some if mark not in always]
    none = dict.fromkeys(MARKS, False) | dict.fromkeys(always, True)
    choices = chain.from_iterable(combinations(rest, size) for size in range(len(rest) + 1))
    try:
        code = compile(expression or "True", "-m", "eval")
        return any(eval(code, {}, none | dict.fromkeys(one, True)) for one in choices)
    except (SyntaxError, NameError, TypeError):
        return True  # pytest knows more, or says what is wrong
