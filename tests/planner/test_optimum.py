"""What every plan promises, whatever the problem; that the optimum is the optimum; small cases."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import assume, given, settings

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.greedy import greedy_shares
from bftrainer_slurm.planner.held_and_idle import divided, few_are_idle, undivided
from bftrainer_slurm.planner.optimum import GAP, incumbents
from bftrainer_slurm.planner.problem import Costs, NodeClass, Plan, Problem, Share, feasible, value
from bftrainer_slurm.planner.solver import Planner
from bftrainer_slurm.replay.policies import equal_shares
from scripts.planner_bench.instances import made
from tests.planner.exact import best_packed, exact_counts
from tests.planner.problems import (
    RIVALS,
    planned,
    problem,
    problems,
    problems_with_classes,
)

alike_or_not = given(problems(tuple(Costs)) | problems_with_classes())


def shares_of(problem: Problem, plan: Plan) -> list[Share]:
    parts = problem.classes or (NodeClass("", problem.pool),)
    return [
        tuple(len(plan.assignment[one.key] & part.nodes) for part in parts)
        for one in problem.trainers
    ]


def slack(problem: Problem) -> float:
    """The gap, of the most that is at stake."""
    most = max((max(one.curve.values) for one in problem.trainers), default=0.0)
    return 1.1 * GAP * problem.forward_time_s * most + 1e-9


@settings(max_examples=150, deadline=None)
@alike_or_not
def test_is_the_best_of_all_keeps_bounds_and_classes_and_moves_nobody(
    planner: Planner, problem: Problem
) -> None:
    plan = planner.plan(problem)
    shares, given = shares_of(problem, plan), list(chain.from_iterable(plan.assignment.values()))
    assert feasible(problem, shares)
    assert len(given) == len(problem.pool.intersection(given))  # one trainer a node
    for one in problem.trainers:
        nodes = plan.assignment[one.key]
        assert nodes <= one.current or nodes >= one.current
    assert plan.objective == value(problem, shares)
    best = best_packed(problem) if problem.classes else value(problem, exact_counts(problem))
    assert plan.status == "optimal"
    assert math.isclose(plan.objective, best, rel_tol=GAP, abs_tol=slack(problem))


@settings(max_examples=60, deadline=None)
@alike_or_not
def test_plans_without_a_solver_are_feasible_and_the_greedy_one_no_worse_than_now(
    problem: Problem,
) -> None:
    shares = greedy_shares(problem)
    now = [problem.now(trainer) for trainer in problem.trainers]
    assert feasible(problem, shares)
    assert not feasible(problem, now) or value(problem, shares) >= value(problem, now)
    assert problem.classes or feasible(problem, equal_shares(problem))


@pytest.mark.parametrize(
    "size",
    [(10, 64), (100, 1_000), (100, 5_000), (60, 6_000)],
    ids=lambda size: "{}x{}".format(*size),
)
@pytest.mark.parametrize("seed", [0, 1])
def test_equals_the_dynamic_programme_on_problems_of_a_site(
    planner: Planner, size: tuple[int, int], seed: int
) -> None:
    problem = made(*size, seed)
    plan = planner.plan(problem)
    assert plan.status == "optimal"
    assert plan.objective == pytest.approx(value(problem, exact_counts(problem)), rel=GAP)


@pytest.mark.parametrize("scale", [1e6, 1e9, 1e12])
def test_who_has_little_at_stake_is_planned_for_as_well_beside_a_huge_one(
    planner: Planner, scale: float
) -> None:
    huge = planned("z", bounds=(4, 8), curve=ThroughputCurve((0, 4, 8), (0.0, scale, scale)))
    plan = planner.plan(problem(8, planned("a", "n0 n1 n2 n3"), *RIVALS, huge))
    small = {key: len(nodes) for key, nodes in plan.assignment.items() if key != "z"}
    assert small == {"a": 0, "b": 0, "c": 2, "d": 2}


# Small cases that can be checked by hand: the greedy plan finds the optimum of easy ones.

STEEP = ThroughputCurve((0, 1, 8), (0.0, 3.0, 24.0))
SATURATED = ThroughputCurve((0, 1, 2, 8), (0.0, 1.0, 1.5, 1.5))
LATE = ThroughputCurve((0, 1, 3, 4, 8), (0.0, 0.1, 0.2, 8.0, 8.0))  # not concave
WORSE_WITH_MORE = ThroughputCurve((0, 2, 4), (0.0, 2.0, 1.0))
FOUR, TWO = ThroughputCurve((0, 4), (0.0, 1.28)), ThroughputCurve((0, 2), (0.0, 1.0))
FALLS = ThroughputCurve((0, 1, 2, 4), (0.0, 6.0, 10.0, 9.0))
NEEDS_THREE = planned("b", "", (3, 3), ThroughputCurve((0, 3), (0.0, 2.0)), (0.0, 0.0))
FEW = (2, 4, 8)  # sizes

CASES = {
    "as many as it may have": (problem(9, planned(bounds=(1, 4))), [4]),
    "a minimum that does not fit": (problem(3, planned(bounds=(4, 8))), [0]),
    "no more than bring anything": (problem(8, planned(curve=SATURATED)), [2]),
    "across the flat part of a curve": (problem(4, planned(curve=LATE)), [4]),
    "not past a curve's summit": (problem(4, planned(curve=WORSE_WITH_MORE)), [2]),
    "what is idle beside those that stay": (
        problem(
            4,
            planned("a", "n0 n1 n2", (3, 4), FOUR, (8.0, 7.0)),
            planned("b", "", (2, 2), TWO, (8.0, 7.0)),
        ),
        [4, 0],
    ),
    "what one cannot use to the other": (
        problem(7, planned("a", sizes=FEW, curve=STEEP), planned("b")),
        [4, 3],
    ),
    "at once to a size that it can train on, if it has lost a node": (
        problem(3, planned(current="n0 n1 n2", sizes=FEW, costs=(300.0, 300.0))),
        [2],
    ),
    "up rather than down, if there is a node": (
        problem(4, planned(current="n0 n1 n2", sizes=FEW, costs=(0.0, 0.0))),
        [4],
    ),
    "what one has to another that gains more": (
        problem(4, planned("a", "n0 n1 n2 n3"), planned("b", curve=STEEP)),
        [0, 4],
    ),
    "what the first has left to the other": (
        problem(4, planned("a", bounds=(1, 3), curve=STEEP), planned("b")),
        [3, 1],
    ),
    "what one is better off without to another": (
        problem(5, planned("a", "n0 n1 n2 n3", (1, 4), FALLS, (0.0, 0.0)), NEEDS_THREE),
        [2, 3],
    ),
    "what is within its bounds, if it is outside": (
        problem(4, planned("a", "n0 n1 n2", (1, 2)), planned("b", "n3", (5, 5))),
        [2, 0],
    ),
}


@pytest.mark.parametrize(("case", "counts"), CASES.values(), ids=CASES)
def test_who_gets(planner: Planner, case: Problem, counts: list[int]) -> None:
    plan = planner.plan(case)
    assert [len(plan.assignment[one.key]) for one in case.trainers] == counts
    assert greedy_shares(case) == [(count,) for count in counts]


@pytest.mark.parametrize(
    ("bounds", "nodes", "counts"),
    [
        ([(1, 8), (1, 8)], 7, [4, 3]),
        ([(1, 2), (1, 8)], 8, [2, 6]),
        ([(4, 8), (4, 8)], 6, [6, 0]),
        ([(1, 2), (5, 5)], 4, [2, 0]),
    ],
)
def test_equal_share_hands_out_in_turn(
    bounds: list[tuple[int, int]], nodes: int, counts: list[int]
) -> None:
    trainers = [planned(str(index), bounds=pair) for index, pair in enumerate(bounds)]
    assert equal_shares(problem(nodes, *trainers)) == [(count,) for count in counts]


# Plans on what is held and what is idle of each class are plans on the classes.


def test_a_class_is_divided_into_what_is_held_and_what_is_idle() -> None:
    classes = NodeClass("first", frozenset({"n0", "n1", "n2"})), NodeClass("b", frozenset({"n3"}))
    halves = divided(problem(4, planned(current="n0 n2"), classes=classes))
    assert [one.nodes for one in halves.classes] == [{"n0", "n2"}, {"n1"}, set(), {"n3"}]
    assert halves.now(halves.trainers[0]) == (2, 0, 0, 0)
    assert undivided((2, 1, 0, 1)) == (3, 1)


def test_dividing_is_worth_while_where_few_nodes_are_idle() -> None:
    nodes = [f"n{number}" for number in range(40)]
    classes = (NodeClass("all", frozenset(nodes)),)
    for held, few in ((38, True), (37, False)):
        busy = planned(current=" ".join(nodes[:held]), bounds=(1, 40))
        assert few_are_idle(problem(40, busy, classes=classes)) is few


@settings(max_examples=30, deadline=None)
@given(problems_with_classes())
def test_a_plan_on_halves_is_worth_as_much_on_the_classes_and_the_best_one_the_best(
    problem: Problem,
) -> None:
    halves = divided(problem)
    shares = greedy_shares(halves)
    counts = [undivided(share) for share in shares]
    assert feasible(halves, shares)
    assert feasible(problem, counts)
    assert value(problem, counts) == pytest.approx(value(halves, shares))
    assume(problem.trainers)
    (*_, on_halves), (*_, plain) = incumbents(halves, 30.0), incumbents(problem, 30.0)
    assert on_halves.optimal and plain.optimal
    reached = value(halves, on_halves.shares)
    assert reached == pytest.approx(value(problem, plain.shares), rel=GAP, abs=slack(problem))


# Of several plans that are as good, CBC finds one or the other by its model.

_WRITE = """
import sys
from bftrainer_slurm.planner.optimum import CountModel, incumbents
from tests.planner.problems import HARD

def write(self, *limits):
    self._model.write(sys.argv[1])
    raise SystemExit

CountModel.solve = write
list(incumbents(HARD, 10.0))
"""


def test_the_model_is_the_same_in_each_process_whatever_the_order_of_its_sets(
    tmp_path: Path,
) -> None:
    models = set()
    for seed in "123":
        command = [sys.executable, "-c", _WRITE, str(tmp_path / "model.lp")]
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, check=True)
        models.add((tmp_path / "model.lp").read_text())
    (model,) = models
    assert "Integers" in model
