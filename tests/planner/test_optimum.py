"""What every plan promises, whatever the problem; and that the optimum is the optimum."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.greedy import greedy_shares, one_by_one, with_rest
from bftrainer_slurm.planner.instance import read_instance
from bftrainer_slurm.planner.lagrangian import Relaxation
from bftrainer_slurm.planner.optimum import GAP
from bftrainer_slurm.planner.problem import Costs, NodeClass, Plan, Problem, Share, feasible, value
from bftrainer_slurm.planner.segments import groups_of
from bftrainer_slurm.planner.solver import Planner
from bftrainer_slurm.replay.policies import equal_shares
from scripts.planner_bench.instances import made
from tests.planner.exact import exact_counts, exact_shares
from tests.planner.problems import (
    INSTANCES,
    RIVALS,
    planned,
    problem,
    problems,
    problems_with_classes,
)

any_problem = settings(max_examples=60, deadline=None)


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


@pytest.mark.skipif(not INSTANCES.is_dir(), reason=f"no recorded instances in {INSTANCES}")
@pytest.mark.parametrize("path", sorted(INSTANCES.glob("*.json")), ids=lambda path: path.stem)
def test_reaches_the_recorded_optimum(planner: Planner, path: Path) -> None:
    problem = read_instance(path)
    plan = planner.plan(problem)
    assert plan.status == "optimal"
    assert plan.objective == pytest.approx(json.loads(path.read_text())["optimum"], rel=GAP)
    assert value(problem, exact_counts(problem)) == pytest.approx(plan.objective, rel=GAP)


@any_problem
@given(problems(tuple(Costs)))
def test_equals_the_dynamic_programme(planner: Planner, problem: Problem) -> None:
    plan = planner.plan(problem)
    best = value(problem, exact_counts(problem))
    assert plan.status == "optimal"
    assert math.isclose(plan.objective, best, rel_tol=GAP, abs_tol=slack(problem))


@any_problem
@given(problems_with_classes())
def test_equals_the_best_of_all_plans_where_nodes_differ(
    planner: Planner, problem: Problem
) -> None:
    plan = planner.plan(problem)
    best = value(problem, exact_shares(problem))
    assert plan.status == "optimal"
    assert math.isclose(plan.objective, best, rel_tol=GAP, abs_tol=slack(problem))


@any_problem
@alike_or_not
def test_keeps_bounds_classes_and_one_trainer_a_node(planner: Planner, problem: Problem) -> None:
    plan = planner.plan(problem)
    given = [node for nodes in plan.assignment.values() for node in nodes]
    assert feasible(problem, shares_of(problem, plan))
    assert len(given) == len(set(given))
    assert problem.pool.issuperset(given)


@any_problem
@given(problems(tuple(Costs)))
def test_moves_nobody_for_less_than_the_changes_lose(planner: Planner, problem: Problem) -> None:
    stay = [problem.now(trainer) for trainer in problem.trainers]
    if not feasible(problem, stay):
        return  # some have nodes, but not as many as they need
    shares = shares_of(problem, planner.plan(problem))
    pairs = zip(problem.trainers, shares, stay, strict=True)
    lost = sum(one.loss_s * one.curve.at(sum(now)) for one, share, now in pairs if share != now)
    free = tuple(replace(one, loss_s=0.0) for one in problem.trainers)
    without = replace(problem, trainers=free)
    assert value(without, shares) - value(without, stay) >= lost - slack(problem) - 1e-9 * lost


@any_problem
@alike_or_not
def test_states_the_objective_of_its_own_counts(planner: Planner, problem: Problem) -> None:
    plan = planner.plan(problem)
    assert plan.objective == value(problem, shares_of(problem, plan))


@any_problem
@alike_or_not
def test_never_migrates(planner: Planner, problem: Problem) -> None:
    plan = planner.plan(problem)
    for one in problem.trainers:
        nodes = plan.assignment[one.key]
        assert nodes <= one.current or nodes >= one.current


def test_what_a_trainer_gives_back_is_given_to_others() -> None:
    """One of four nodes is better off with two; then there is room for one that needs three."""
    falls = ThroughputCurve((0, 1, 2, 4), (0.0, 6.0, 10.0, 9.0))
    needs_three = planned("b", "", (3, 3), ThroughputCurve((0, 3), (0.0, 2.0)), (0.0, 0.0))
    case = problem(5, planned("a", "n0 n1 n2 n3", (1, 4), falls, (0.0, 0.0)), needs_three)
    relaxation = Relaxation(groups_of(case), case)
    assert with_rest(case, one_by_one(case, relaxation), [(4,), (0,)]) == [(2,), (3,)]


@any_problem
@alike_or_not
def test_the_greedy_plan_is_feasible_and_no_worse_than_now(problem: Problem) -> None:
    shares = greedy_shares(problem)
    now = [problem.now(trainer) for trainer in problem.trainers]
    assert feasible(problem, shares)
    if feasible(problem, now):
        assert value(problem, shares) >= value(problem, now)


@any_problem
@given(problems(tuple(Costs)))
def test_the_equal_share_is_feasible(problem: Problem) -> None:
    assert feasible(problem, equal_shares(problem))


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
