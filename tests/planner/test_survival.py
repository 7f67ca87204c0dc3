"""What is expected of holes: by where the node stands, by their age, and by what was seen."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bftrainer_slurm.planner.survival import Survival

TEN = [0.0] * 10


def test_without_experience_all_holes_are_alike() -> None:
    life_s = Survival().life_s([0.0, 50.0, 10_000.0])
    assert life_s == pytest.approx([600, 600, 600])


def test_learns_from_which_end_the_scheduler_takes_nodes() -> None:
    survival = Survival()
    for _ in range(20):
        survival.observe(TEN, [True, True] + [False] * 8, 60.0)
    life_s = survival.life_s(TEN)
    assert (np.diff(life_s) >= 0).all()
    assert life_s[9] > 3 * life_s[0]


def test_learns_that_old_holes_last_longer() -> None:
    survival = Survival()
    ages_s = [10.0, 7200.0] * 5
    for _ in range(20):
        survival.observe(ages_s, [True, False] * 5, 60.0)
    young, old = survival.life_s([10.0, 7200.0])
    assert old > 2 * young


def test_learns_how_long_holes_last_in_all() -> None:
    survival = Survival()
    for _ in range(500):
        survival.observe(TEN, [True] * 10, 1000.0)
    assert survival.life_s(TEN) == pytest.approx([1000] * 10, rel=0.05)


def test_forgets() -> None:
    survival = Survival()
    survival.observe(TEN, [True] * 10, 1.0)
    short = survival.life_s(TEN)[0]
    for _ in range(100):
        survival.observe([0.0], [False], 86400.0)
    assert survival.life_s(TEN)[0] > short


def test_a_pool_without_nodes_teaches_nothing() -> None:
    survival = Survival()
    survival.observe([], [], 1000.0)
    assert survival.life_s([]).size == 0
    assert all(map(math.isfinite, survival.life_s(TEN)))
