"""The dynamic programme over a core: small cores by hand, and what it leaves to CBC."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given, settings

from bftrainer_slurm.planner import programme
from bftrainer_slurm.planner.core import Answer, Seat
from bftrainer_slurm.planner.hills import Hill, Stretch
from bftrainer_slurm.planner.problem import Costs, Problem, value
from bftrainer_slurm.planner.programme import best_counts
from bftrainer_slurm.planner.solver import Planner
from tests.planner.exact import exact_counts
from tests.planner.problems import problems

NONE = Hill(0, (0,), 0.0, (), ())


def hill(least: int, loss: float, *steps: tuple[int, float]) -> Hill:
    stretches = tuple(Stretch(*step) for step in steps)
    room = Stretch(sum(one.nodes for one in stretches), 0.0)
    return Hill(least, (least,), loss, stretches, (room,) if steps else ())


@pytest.mark.parametrize(
    ("seats", "nodes", "shares"),
    [
        ([], 0, {}),
        ([Seat((0,), (NONE,))], 0, {0: (0,)}),
        ([Seat((0,), (NONE, hill(3, 2.0)))], 3, {0: (3,)}),  # three unused would lose three
        ([Seat((0,), (NONE, hill(3, 4.0)))], 3, {0: (0,)}),
        ([Seat((0,), (NONE, hill(3, 0.0)))], 2, {0: (0,)}),  # does not fit
        ([Seat((0,), (hill(1, 1.0, (4, -0.5), (4, 2.0)),))], 9, {0: (5,)}),  # within a hill
        ([Seat((0, 1), (NONE, hill(2, 0.5)))], 3, {0: (2,), 1: (0,)}),  # alike, but only one can
        (
            [Seat((1,), (NONE, hill(2, 0.0))), Seat((0,), (NONE, hill(3, 0.0)))],
            3,
            {0: (3,), 1: (0,)},
        ),
    ],
)
def test_the_least_loss(seats: list[Seat], nodes: int, shares: dict[int, tuple[int]]) -> None:
    answer = best_counts(seats, nodes, price=1.0, most_loss=10.0)
    assert answer.optimal
    assert answer.shares is not None
    assert sorted(answer.shares.items()) == sorted(shares.items())


@pytest.mark.parametrize(
    "seats",
    [
        [Seat((0,), (hill(3, 2.0),))],
        [Seat((0,), (NONE,))],  # what is unused loses more
        [Seat((0, 1), (hill(2, 0.0),))],  # does not fit
        [Seat((0, 1), (hill(3, 0.0), hill(4, 0.0)))],
    ],
)
def test_says_when_every_plan_loses_more(seats: list[Seat]) -> None:
    assert best_counts(seats, 3, price=1.0, most_loss=1.0) == Answer(None, True)


def test_gives_up_a_core_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programme, "MOST_WORK", 1)
    seats = [Seat((0, 1), (NONE, hill(2, 0.5)))]
    assert best_counts(seats, 3, price=1.0, most_loss=10.0) == Answer(None, False)


@pytest.fixture(scope="module")
def planner_without() -> Iterator[Planner]:
    """One whose child leaves every core to CBC."""
    code = (
        "from bftrainer_slurm.planner import child, programme\n"
        "programme.MOST_WORK = 0; child.main()"
    )
    with Planner(time_limit_s=20.0, command=(sys.executable, "-P", "-c", code)) as planner:
        planner.warm_up()
        yield planner


@settings(max_examples=100, deadline=None)
@given(problems(tuple(Costs)))
def test_cbc_finds_the_optimum_of_what_is_given_up(
    planner_without: Planner, problem: Problem
) -> None:
    plan = planner_without.plan(problem)
    best = value(problem, exact_counts(problem))
    most = max((max(one.curve.values) for one in problem.contenders), default=0.0)
    assert plan.status == "optimal"
    slack = 1e-6 * problem.forward_time_s * most
    assert math.isclose(plan.objective, best, rel_tol=1e-6, abs_tol=slack)
