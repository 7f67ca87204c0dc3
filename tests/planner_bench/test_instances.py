"""The made problems: the same from the same seed, others from others; events leave them sound."""

from __future__ import annotations

import itertools
import random

import pytest

from bftrainer_slurm.planner.greedy import greedy_shares
from bftrainer_slurm.planner.placement import place
from bftrainer_slurm.planner.problem import Plan, Problem
from scripts.planner_bench.instances import after_event, made


def planned(problem: Problem) -> Plan:
    return Plan(place(problem, greedy_shares(problem)), 0.0, 0.0, "greedy")


def test_the_same_seed_makes_the_same_problem() -> None:
    assert made(10, 64, 3) == made(10, 64, 3)


def test_another_seed_makes_another_problem() -> None:
    assert made(10, 64, 3) != made(10, 64, 4)


@pytest.mark.parametrize(("trainers", "nodes"), [(5, 16), (10, 128), (100, 5_000)])
def test_a_made_problem_has_its_size_and_a_map_in_use(trainers: int, nodes: int) -> None:
    problem = made(trainers, nodes, 0)
    held = sum(len(one.current) for one in problem.trainers)
    assert (len(problem.trainers), len(problem.pool)) == (trainers, nodes)
    assert 0.5 < held / nodes < 0.95


def test_smooth_curves_are_concave_and_measured_ones_are_not() -> None:
    def concave(problem: Problem) -> bool:
        return all(
            b - a >= (c - b) / 2 - 1e-9
            for one in problem.trainers
            for a, b, c in zip(*(one.curve.values[k:] for k in (1, 2, 3)), strict=False)
        )

    assert concave(made(7, 64, 0, measured=False))
    assert not concave(made(7, 64, 0))


def test_an_event_starts_from_the_plan_and_moves_1_to_50_nodes() -> None:
    problem, dice, serial = made(10, 400, 0), random.Random(0), itertools.count()
    for _ in range(30):
        plan = planned(problem)
        after = after_event(problem, plan, dice, serial)
        assert 1 <= len(after.pool ^ problem.pool) <= 50
        for one in after.trainers:
            assert one.current == plan.assignment[one.key] & after.pool
        problem = after
