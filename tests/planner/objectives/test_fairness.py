"""Fairness: waiting raises the weight, within bounds, and a user counts once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.planner.objectives import Facts, find
from bftrainer_slurm.planner.solver import Planner
from tests.planner.objectives.made import amdahl, facts
from tests.planner.objectives.stream import counts_of_plans

WAITING = Facts(amdahl(0.05), 1, 64, user="a")


def first_value(*trainers: Facts) -> float:
    return find("speedup+fairness")(trainers)[0].at(trainers[0].min_nodes)


@given(times=st.lists(st.floats(0, 1e6), min_size=2).map(sorted))
def test_waiting_never_lowers_the_weight(times: list[float]) -> None:
    values = [first_value(replace(WAITING, waited_s=time)) for time in times]
    assert all(earlier <= later for earlier, later in pairwise(values))


@given(one=facts(), longer=st.floats(0, 1e7))
def test_waiting_raises_the_weight_a_hundred_times_at_most(one: Facts, longer: float) -> None:
    fresh = replace(one, nodes=0, waited_s=0.0)
    assert first_value(replace(fresh, waited_s=longer)) <= 100.001 * first_value(fresh)


def test_an_hour_of_waiting_doubles_the_weight() -> None:
    assert first_value(replace(WAITING, waited_s=3600.0)) == pytest.approx(2 * first_value(WAITING))


def test_a_trainer_does_not_wait_while_another_one_of_its_user_runs() -> None:
    long, running = replace(WAITING, waited_s=1e6), replace(WAITING, nodes=4)
    assert first_value(long, running) == first_value(WAITING, running)


def test_between_users_the_weight_of_a_trainer_counts_for_nothing() -> None:
    assert first_value(replace(WAITING, weight=1000.0)) == pytest.approx(first_value(WAITING))


def test_among_the_trainers_of_a_user_the_weight_counts() -> None:
    heavy, light = find("speedup+fairness")([replace(WAITING, weight=3.0), WAITING])
    assert heavy.at(8) > light.at(8)


@given(count=st.integers(1, 30), size=st.sampled_from([1, 4, 64]))
def test_many_trainers_count_as_one_that_reaches_as_much(count: int, size: int) -> None:
    together = sum(curve.at(size) for curve in find("speedup+fairness")([WAITING] * count))
    assert together == pytest.approx(math.log1p(count * WAITING.curve.at(size)))


def longest_wait(counts: list[list[int]], trainers: Sequence[Facts], user: str) -> int:
    """The most plans in a row in which a user has no node."""
    mine = [index for index, one in enumerate(trainers) if one.user == user]
    longest = current = 0
    for plan in counts:
        current = 0 if any(plan[index] for index in mine) else current + 1
        longest = max(longest, current)
    return longest


def nodes_of(counts: list[list[int]], trainers: Sequence[Facts], user: str) -> int:
    mine = [index for index, one in enumerate(trainers) if one.user == user]
    return sum(plan[index] for plan in counts for index in mine)


# a's trainer outweighs all others on few nodes; only one of the three fits at a time.
CONTENDED = [
    Facts(amdahl(0.01), 2, 8, weight=5.0, user="a"),
    Facts(amdahl(0.05), 2, 64, user="b"),
    Facts(amdahl(0.1), 2, 64, user="c"),
]


def test_without_fairness_users_starve(planner: Planner) -> None:
    counts = counts_of_plans(planner, "speedup", CONTENDED, pool=2, plans=70)
    assert longest_wait(counts, CONTENDED, "b") == 70


def test_with_fairness_every_user_has_nodes_within_half_an_hour(planner: Planner) -> None:
    counts = counts_of_plans(planner, "speedup+fairness", CONTENDED, pool=2, plans=70)
    assert max(longest_wait(counts, CONTENDED, user) for user in "abc") <= 30


def test_turns_last_longer_than_a_few_plans(planner: Planner) -> None:
    counts = counts_of_plans(planner, "speedup+fairness", CONTENDED, pool=2, plans=70)
    assert sum(before != after for before, after in pairwise(counts)) <= 70 / 5


def test_with_fairness_a_trainer_of_many_nodes_starts_too(planner: Planner) -> None:
    trainers = [Facts(amdahl(0.0), 1, 64, user="a"), Facts(amdahl(0.05), 6, 64, user="b")]
    counts = counts_of_plans(planner, "speedup+fairness", trainers, pool=8, plans=70)
    assert longest_wait(counts, trainers, "b") < 70


@pytest.mark.parametrize(("objective", "fair"), [("speedup", False), ("speedup+fairness", True)])
def test_a_user_with_ten_trainers_gets_about_as_much_as_one_with_one(
    planner: Planner, objective: str, fair: bool
) -> None:
    trainers = [Facts(amdahl(0.02), 1, 64, user=user) for user in "aaaaaaaaaab"]
    counts = counts_of_plans(planner, objective, trainers, pool=40, plans=3)
    ratio = nodes_of(counts, trainers, "a") / nodes_of(counts, trainers, "b")
    assert (ratio < 2) is fair
