"""What every plan promises where nodes have classes, whatever the problem."""

from __future__ import annotations

import math

from hypothesis import given, settings

from bftrainer_slurm.planner.greedy import greedy_shares
from bftrainer_slurm.planner.problem import Plan, Problem, Share, feasible, value
from bftrainer_slurm.planner.solver import Planner
from tests.planner.exact import exact_shares
from tests.planner.problems import problems_with_classes

any_problem = settings(max_examples=60, deadline=None)


def shares_of(problem: Problem, plan: Plan) -> list[Share]:
    return [
        tuple(len(plan.assignment[one.key] & part.nodes) for part in problem.classes)
        for one in problem.trainers
    ]


def slack(problem: Problem) -> float:
    """1e-6 of the most that is at stake: differences of large numbers have no better digits."""
    most = max((max(one.curve.values) for one in problem.trainers), default=0.0)
    return 1e-6 * problem.forward_time_s * most + 1e-9


@any_problem
@given(problems_with_classes())
def test_equals_the_best_of_all_plans(planner: Planner, problem: Problem) -> None:
    plan = planner.plan(problem)
    best = value(problem, exact_shares(problem))
    assert plan.status == "optimal"
    assert math.isclose(plan.objective, best, rel_tol=1e-6, abs_tol=slack(problem))


@any_problem
@given(problems_with_classes())
def test_keeps_bounds_kinds_and_classes(planner: Planner, problem: Problem) -> None:
    plan = planner.plan(problem)
    given = [node for nodes in plan.assignment.values() for node in nodes]
    assert feasible(problem, shares_of(problem, plan))
    assert len(given) == len(set(given))
    assert problem.pool.issuperset(given)


@any_problem
@given(problems_with_classes())
def test_states_the_objective_of_its_own_shares(planner: Planner, problem: Problem) -> None:
    plan = planner.plan(problem)
    assert plan.objective == value(problem, shares_of(problem, plan))


@any_problem
@given(problems_with_classes())
def test_never_migrates(planner: Planner, problem: Problem) -> None:
    plan = planner.plan(problem)
    for trainer in problem.trainers:
        nodes = plan.assignment[trainer.key]
        assert nodes <= trainer.current or nodes >= trainer.current


@any_problem
@given(problems_with_classes())
def test_is_no_worse_than_the_current_allocation(planner: Planner, problem: Problem) -> None:
    now = [problem.now(trainer) for trainer in problem.trainers]
    if feasible(problem, now):
        assert planner.plan(problem).objective >= value(problem, now)


@any_problem
@given(problems_with_classes())
def test_the_greedy_plan_is_feasible_and_no_worse_than_now(problem: Problem) -> None:
    shares = greedy_shares(problem)
    now = [problem.now(trainer) for trainer in problem.trainers]
    assert feasible(problem, shares)
    if feasible(problem, now):
        assert value(problem, shares) >= value(problem, now)
