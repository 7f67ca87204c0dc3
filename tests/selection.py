"""Files without a test that ``-m`` means are not even read, which takes seconds of a core in all.

So a file names its tests' marks itself, as ``mark.NAME``; one that does not is an error.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from itertools import chain, combinations
from pathlib import Path

MARKS = ("slurm", "torch", "once", "newest", "chaos", "frameworks", "load")


@cache
def marks_in(path: Path) -> list[str]:
    """Return the marks that tests in this file may have."""
    text = path.read_text()
    return [mark for mark in MARKS if f"mark.{mark}" in text]


def may_mean(expression: str, marks: Collection[str]) -> bool:
    """Return whether ``-m`` may mean a test that has some of these marks, or none."""
    none = dict.fromkeys(MARKS, False)
    some = chain.from_iterable(combinations(marks, size) for size in range(len(marks) + 1))
    try:
        code = compile(expression or "True", "-m", "eval")
        return any(eval(code, {}, none | dict.fromkeys(one, True)) for one in some)
    except (SyntaxError, NameError, TypeError):
        return True  # pytest knows more, or says what is wrong
