"""Fairness: waiting raises the weight, within bounds, and a user counts once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.planner.objectives import Facts, curves_of, find
from bftrainer_slurm.planner.problem import PlannedTrainer, Problem
from bftrainer_slurm.planner.solver import Planner
from tests.planner.objectives.test_objectives import amdahl, facts

WAITING = Facts(amdahl(0.05), 1, 64, user="a")


def first_value(*trainers: Facts) -> float:
    return find("speedup+fairness")(trainers)[0].at(trainers[0].min_nodes)


@given(one=facts(), longer=st.floats(0, 1e7), longest=st.floats(0, 1e7))
def test_waiting_never_lowers_the_weight_and_raises_it_a_hundred_times_at_most(
    one: Facts, longer: float, longest: float
) -> None:
    times_s = sorted((0.0, longer, longest))
    values = [first_value(replace(one, nodes=0, waited_s=waited_s)) for waited_s in times_s]
    assert all(earlier <= later for earlier, later in pairwise(values))
    assert values[-1] <= 100.001 * values[0]


def test_an_hour_of_waiting_doubles_the_weight() -> None:
    assert first_value(replace(WAITING, waited_s=3600.0)) == pytest.approx(2 * first_value(WAITING))


def test_a_trainer_does_not_wait_while_another_one_of_its_user_runs() -> None:
    long, running = replace(WAITING, waited_s=1e6), replace(WAITING, nodes=4)
    assert first_value(long, running) == first_value(WAITING, running)


def test_the_weight_of_a_trainer_counts_among_those_of_its_user_alone() -> None:
    assert first_value(replace(WAITING, weight=1000.0)) == pytest.approx(first_value(WAITING))
    heavy, light = find("speedup+fairness")([replace(WAITING, weight=3.0), WAITING])
    assert heavy.at(8) > light.at(8)


@given(count=st.integers(1, 30), size=st.sampled_from([1, 4, 64]))
def test_many_trainers_count_as_one_that_reaches_as_much(count: int, size: int) -> None:
    together = sum(curve.at(size) for curve in find("speedup+fairness")([WAITING] * count))
    assert together == pytest.approx(math.log1p(count * WAITING.curve.at(size)))


# A small contended cluster: plan after plan, a minute apart, with the real planner.


def counts_of_plans(
    planner: Planner, objective: str, trainers: Sequence[Facts], pool: int, plans: int = 70
) -> list[Counter[str]]:
    """Return each user's nodes after each plan; they start with none."""
    now, held, result = list(trainers), [frozenset[str]()] * len(trainers), []
    for _ in range(plans):
        curves = curves_of(find(objective), now)
        asking = tuple(
            PlannedTrainer(str(key), one.min_nodes, one.max_nodes, nodes, curve, 18.0, 12.0)
            for key, (one, nodes, curve) in enumerate(zip(now, held, curves, strict=True))
        )
        nodes = frozenset(f"n{number}" for number in range(pool))
        plan = planner.plan(Problem(nodes, 120.0, asking))
        held = [plan.assignment[one.key] for one in asking]
        now = [
            replace(one, nodes=len(has), waited_s=0.0 if has else one.waited_s + 60.0)
            for one, has in zip(now, held, strict=True)
        ]
        result.append(Counter(one.user for one in now for _ in range(one.nodes)))
    return result


def longest_wait(counts: list[Counter[str]], user: str) -> int:
    """The most plans in a row in which a user has no node."""
    waits = "".join("-" if plan[user] else "w" for plan in counts)
    return max(map(len, waits.split("-")))


# a's trainer outweighs all others on few nodes; only one of the three fits at a time.
CONTENDED = [
    Facts(amdahl(0.01), 2, 8, weight=5.0, user="a"),
    Facts(amdahl(0.05), 2, 64, user="b"),
    Facts(amdahl(0.1), 2, 64, user="c"),
]


def test_with_fairness_every_user_has_nodes_within_half_an_hour_and_keeps_them_for_a_few_plans(
    planner: Planner,
) -> None:
    counts = counts_of_plans(planner, "speedup+fairness", CONTENDED, pool=2)
    assert max(longest_wait(counts, user) for user in "abc") <= 30
    assert sum(before != after for before, after in pairwise(counts)) <= 70 / 5


def test_with_fairness_a_trainer_of_many_nodes_starts_too(planner: Planner) -> None:
    trainers = [Facts(amdahl(0.0), 1, 64, user="a"), Facts(amdahl(0.05), 6, 64, user="b")]
    counts = counts_of_plans(planner, "speedup+fairness", trainers, pool=8)
    assert longest_wait(counts, "b") < 70


@pytest.mark.parametrize(("objective", "fair"), [("speedup", False), ("speedup+fairness", True)])
def test_a_user_with_ten_trainers_gets_about_as_much_as_one_with_one(
    planner: Planner, objective: str, fair: bool
) -> None:
    trainers = [Facts(amdahl(0.02), 1, 64, user=user) for user in "aaaaaaaaaab"]
    counts = counts_of_plans(planner, objective, trainers, pool=40, plans=3)
    many, one = (sum(plan[user] for plan in counts) for user in "ab")
    assert (many / one < 2) is fair
