"""What every plan promises where trainers have parts of nodes, whatever the problem."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from random import Random
from unittest import mock

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bftrainer_slurm.planner import bins, supply
from bftrainer_slurm.planner.greedy import greedy_shares
from bftrainer_slurm.planner.instance import anonymous, problem_of
from bftrainer_slurm.planner.lagrangian import Relaxation
from bftrainer_slurm.planner.optimum import GAP, pieces_of
from bftrainer_slurm.planner.packing import is_packed, pack_most, shares_of
from bftrainer_slurm.planner.problem import (
    NodeClass,
    Plan,
    Problem,
    feasible,
    value,
)
from bftrainer_slurm.planner.segments import groups_of
from bftrainer_slurm.planner.solver import Planner
from scripts.planner_bench.instances import after_event, made, made_in_parts
from tests.planner.exact import best_packed
from tests.planner.problems import problems_in_parts
from tests.planner.test_optimum import slack

any_problem = settings(max_examples=40, deadline=None)


def nodes_of(problem: Problem, plan: Plan) -> list[frozenset[str]]:
    return [plan.assignment[one.key] for one in problem.trainers]


@any_problem
@given(problems_in_parts())
def test_equals_the_best_of_all_packings(planner: Planner, problem: Problem) -> None:
    plan = planner.plan(problem)
    nodes = nodes_of(problem, plan)
    assert plan.status == "optimal"
    assert math.isclose(plan.objective, best_packed(problem), rel_tol=GAP, abs_tol=slack(problem))
    assert is_packed(problem, nodes)
    assert feasible(problem, shares_of(problem, nodes))
    assert plan.objective == value(problem, shares_of(problem, nodes))


@settings(max_examples=200, deadline=None)
@given(problems_in_parts(), st.randoms(use_true_random=False), st.sampled_from([0, 60]))
def test_whatever_leaves_and_joins_keeps_the_rows(
    problem: Problem, dice: Random, kinds: int
) -> None:
    """Every trainer leaves some of its nodes, in any order; then the others join at random.

    Elements are of so many ``kinds`` at most, above that they are taken as alike.
    """
    with mock.patch.object(supply, "MOST_KINDS", kinds):
        _leave_and_join(problem, dice)


def _leave_and_join(problem: Problem, dice: Random) -> None:
    wide = [replace(one, min_nodes=1, max_nodes=5, sizes=()) for one in problem.trainers]
    sized = replace(problem, trainers=tuple(wide))
    nodes = [set(one.current) for one in sized.trainers]
    for its in nodes:
        if dice.random() < 0.5:
            its -= set(dice.sample(sorted(its), dice.randint(0, len(its))))
    pairs = list(itertools.product(range(len(nodes)), sorted(sized.pool)))
    for index, node in dice.sample(pairs, len(pairs)):
        one = sized.trainers[index]
        part = next(part for part in sized.all_classes() if node in part.nodes)
        if nodes[index] < one.current or node in nodes[index] or not sized.may_use(one, part):
            continue
        nodes[index].add(node)
        if not is_packed(sized, list(map(frozenset, nodes))):
            nodes[index].remove(node)
    packed = list(map(frozenset, nodes))
    if is_packed(sized, packed):  # some have nodes now that they may not have
        assert feasible(sized, shares_of(sized, packed))


@any_problem
@given(problems_in_parts())
def test_the_bin_packing_milp_finds_the_same(problem: Problem) -> None:
    assume(problem.trainers)
    best = best_packed(problem)
    relaxation = Relaxation(groups_of(problem), problem)
    pieces = pieces_of(relaxation, relaxation.common_price(), math.inf)
    found, proven = bins.solve(problem, pieces, 0.0, 60.0)
    assert proven and found is not None and feasible(problem, shares_of(problem, found))
    assert is_packed(problem, found)
    worth = value(problem, shares_of(problem, found))
    assert math.isclose(worth, best, rel_tol=GAP, abs_tol=slack(problem))


def test_plans_from_event_to_event_are_proven_though_no_element_moves(planner: Planner) -> None:
    """Bins would have too many pairs: the rows alone prove it."""
    problem, dice = made_in_parts(30, 300, 1), Random(1)
    plan = planner.plan(problem)
    for _ in range(3):
        problem = after_event(problem, plan, dice, itertools.count())
        plan = planner.plan(problem)
        assert bins.pairs(problem) > bins.MOST_PAIRS
        assert plan.status == "optimal" and is_packed(problem, nodes_of(problem, plan))


@any_problem
@given(problems_in_parts())
def test_the_greedy_plan_finds_room(problem: Problem) -> None:
    assert is_packed(problem, pack_most(problem, greedy_shares(problem)))


def of_many_sizes(trainers: int, nodes: int, gpus: int, seed: int) -> Problem:
    """Nodes of which ordinary jobs have any number of GPUs; each trainer has parts of some."""
    dice = Random(seed)
    names = [f"n{number}" for number in range(nodes)]
    free = {name: dice.randint(0, gpus) for name in names}
    left, planned = dict(free), []
    for one in made(trainers, nodes, seed).trainers:
        size = dice.choice((1, 2, 3, 4, 6, 8, 12, 16))
        fit = [name for name in dice.sample(names, nodes // 4) if left[name] >= size]
        its = frozenset(fit[: dice.randint(0, 2 * nodes // trainers)])
        left |= {name: left[name] - size for name in its}
        planned.append(replace(one, current=its, gpus=size, max_nodes=nodes))
    classes = (NodeClass("many", frozenset(names), gpus=gpus),)
    return Problem(frozenset(names), 120.0, tuple(planned), classes=classes, free=free)


def test_the_solvers_child_has_the_same_rows_in_the_same_order() -> None:
    for seed in range(10):  # it sorts n10 before n2, and the parent sorts names of its own
        problem = of_many_sizes(6, 30, 16, seed)
        again = problem_of(anonymous(problem))
        for one, other in zip(problem.rows, again.rows, strict=True):
            assert math.isclose(one.amount, other.amount)
            assert one == replace(other, amount=one.amount)


def test_nodes_of_many_gpus_have_no_more_rows_than_few_sizes_need(planner: Planner) -> None:
    problem = of_many_sizes(20, 300, 128, 1)
    assert len(problem.rows) <= 2 * 8 + supply.MOST_KINDS
    plan = planner.plan(problem)
    assert plan.status in ("optimal", "feasible")
    assert is_packed(problem, nodes_of(problem, plan))
