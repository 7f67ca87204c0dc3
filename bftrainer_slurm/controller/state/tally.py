"""A trainer's stays on nodes, summed up as they begin and end: its rows are read once.

Only where a stay is told out of order are they read again, so that the sums are those of the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from bftrainer_slurm.controller.state.goodput import Served, served

Row: TypeAlias = tuple[int, float, float | None, str | None]  # task, start_s, end_s, how


@dataclass(frozen=True, slots=True)
class Tally:
    """A summary of one trainer so far. ``node_s`` counts finished stays only.

    ``had`` says when it had nodes.
    """

    grew: int = 0
    shrank: int = 0
    reclaimed: int = 0
    node_s: float = 0.0
    had: Served = field(default_factory=Served)


class Stays:
    """One trainer's stays; ``tally`` is of all of them."""

    def __init__(self, rows: Iterable[Row]) -> None:
        known = list(rows)
        ways = Counter(how for *_, how in known)
        node_s = sum(end_s - start_s for _, start_s, end_s, _ in known if end_s is not None)
        had = served((start_s, end_s) for _, start_s, end_s, _ in known)
        self.tally = Tally(len(known), ways["shrank"], ways["reclaimed"], node_s, had)
        self._open_s = {task: start_s for task, start_s, end_s, _ in known if end_s is None}

    def begin(self, task: int, start_s: float) -> bool:
        """Add a stay; return whether it could be: not if it begins before others are over."""
        tally, had = self.tally, self.tally.had
        since_s = had.last_s if had.open_s is None else had.open_s
        if task in self._open_s or (since_s is not None and start_s < since_s):
            return False
        self._open_s[task] = start_s
        if had.open_s is None:
            first_s = start_s if had.first_s is None else had.first_s
            had = replace(had, open_s=start_s, first_s=first_s)
        self.tally = replace(tally, grew=tally.grew + 1, had=had)
        return True

    def end(self, task: int, end_s: float, how: str) -> bool:
        """End a stay; return whether it could be: not if it is not known to have begun."""
        start_s, tally, had = self._open_s.pop(task, None), self.tally, self.tally.had
        if start_s is None or had.open_s is None:
            return False
        end_s = max(start_s, end_s)
        last_s = end_s if had.last_s is None else max(had.last_s, end_s)
        had = replace(had, last_s=last_s)
        if not self._open_s and had.open_s is not None:
            had = replace(had, seconds=had.seconds + last_s - had.open_s, open_s=None)
        self.tally = replace(
            tally,
            shrank=tally.shrank + (how == "shrank"),
            reclaimed=tally.reclaimed + (how == "reclaimed"),
            node_s=tally.node_s + end_s - start_s,
            had=had,
        )
        return True
