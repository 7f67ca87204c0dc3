"""What every plan promises where trainers have parts of nodes, whatever the problem."""

from __future__ import annotations

import math

from hypothesis import assume, given, settings

from bftrainer_slurm.planner import bins
from bftrainer_slurm.planner.greedy import greedy_shares
from bftrainer_slurm.planner.packing import is_packed, pack_most, shares_of
from bftrainer_slurm.planner.problem import Plan, Problem, chosen, feasible, settled, value
from bftrainer_slurm.planner.solver import Planner
from tests.planner.exact import best_packed
from tests.planner.problems import problems_in_parts
from tests.planner.test_classes_optimum import slack

any_problem = settings(max_examples=40, deadline=None)


def nodes_of(problem: Problem, plan: Plan) -> list[frozenset[str]]:
    return [plan.assignment[one.key] for one in problem.trainers]


def with_its_sizes(problem: Problem, plan: Plan) -> Problem:
    return settled(problem, [plan.gpus.get(one.key, one.gpus) for one in problem.trainers])


@any_problem
@given(problems_in_parts())
def test_equals_the_best_of_all_packings(planner: Planner, problem: Problem) -> None:
    plan = planner.plan(problem)
    nodes = nodes_of(problem, plan)
    asked, problem = problem, with_its_sizes(problem, plan)
    assert problem.rows() == asked.rows()
    assert plan.status == "optimal"
    assert math.isclose(plan.objective, best_packed(asked), rel_tol=1e-6, abs_tol=slack(problem))
    assert is_packed(problem, nodes)
    assert feasible(problem, shares_of(problem, nodes))
    assert plan.objective == value(problem, shares_of(problem, nodes))


@any_problem
@given(problems_in_parts())
def test_the_bin_packing_milp_finds_the_same(problem: Problem) -> None:
    assume(problem.trainers)
    best = best_packed(problem)
    found, proven = bins.solve(problem, 0.0, 60.0)
    assert proven and found is not None and feasible(problem, found.shares)
    assert is_packed(settled(problem, chosen(problem, found.shares)), found.nodes)
    worth = value(problem, found.shares)
    assert math.isclose(worth, best, rel_tol=1e-6, abs_tol=slack(problem))


@any_problem
@given(problems_in_parts())
def test_the_greedy_plan_finds_room(problem: Problem) -> None:
    shares = greedy_shares(problem)
    sized = settled(problem, chosen(problem, shares))
    assert is_packed(sized, pack_most(sized, shares))


@any_problem
@given(problems_in_parts())
def test_is_no_worse_than_the_current_allocation(planner: Planner, problem: Problem) -> None:
    now = [problem.now(trainer) for trainer in problem.trainers]
    if feasible(problem, now):
        assert planner.plan(problem).objective >= value(problem, now) - slack(problem)
