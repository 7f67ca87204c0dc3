"""What is expected of holes: by where the node stands, by their age, and by what was seen."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bftrainer_slurm.planner.survival import Survival

TEN = [0.0] * 10


def test_without_experience_all_holes_are_alike() -> None:
    assert Survival().life_s([0.0, 50.0, 10_000.0]) == pytest.approx([600, 600, 600])


def observed(ages_s: list[float], ended: list[bool], after_s: float, times: int) -> Survival:
    survival = Survival()
    for _ in range(times):
        survival.observe(ages_s, ended, after_s)
    return survival


def test_learns_from_which_end_the_scheduler_takes_nodes() -> None:
    life_s = observed(TEN, [True, True] + [False] * 8, 60.0, 20).life_s(TEN)
    assert (np.diff(life_s) >= 0).all()
    assert life_s[9] > 3 * life_s[0]


def test_learns_that_old_holes_last_longer() -> None:
    young, old = observed([10.0, 7200.0] * 5, [True, False] * 5, 60.0, 20).life_s([10.0, 7200.0])
    assert old > 2 * young


def test_learns_how_long_holes_last_in_all_and_forgets() -> None:
    life_s = observed(TEN, [True] * 10, 1000.0, 500).life_s(TEN)
    assert life_s == pytest.approx([1000] * 10, rel=0.05)
    survival = observed(TEN, [True] * 10, 1.0, 1)
    short = survival.life_s(TEN)[0]
    for _ in range(100):
        survival.observe([0.0], [False], 86400.0)
    assert survival.life_s(TEN)[0] > short


def test_a_pool_without_nodes_teaches_nothing() -> None:
    survival = observed([], [], 1000.0, 1)
    assert survival.life_s([]).size == 0
    assert all(map(math.isfinite, survival.life_s(TEN)))
