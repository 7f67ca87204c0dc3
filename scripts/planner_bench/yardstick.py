"""A fixed piece of work, timed, by which the tables of two machines can be compared."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from statistics import median

import mip

from bftrainer_slurm.planner.cbc import new_model


def yardstick(repeats: int = 5) -> dict[str, float]:
    """Return how long (seconds, the median) a fixed loop in Python and a fixed MILP take here."""
    works = {"Python": _loop, "CBC": _solve}
    return {name: median(_timed(work) for _ in range(repeats)) for name, work in works.items()}


def _timed(work: Callable[[], None]) -> float:
    begin_s = time.perf_counter()
    work()
    return time.perf_counter() - begin_s


def _loop() -> None:
    counts: dict[int, int] = {}
    for number in range(400_000):
        counts[number % 1_000] = counts.get(number % 1_000, 0) + number


def _solve() -> None:
    """Fill three knapsacks from 30 items."""
    dice, model = random.Random(0), new_model(mip.MAXIMIZE)
    takes = [model.add_var(var_type=mip.BINARY, obj=dice.randint(10, 99)) for _ in range(30)]
    for _ in range(3):
        model += mip.xsum(dice.randint(10, 99) * take for take in takes) <= 810
    model.optimize()
