"""Plans of parts of nodes: the rows of the supply, what finds room, and what each plan promises."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from random import Random
from unittest import mock

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bftrainer_slurm.planner import bins, knapsack, optimum, supply
from bftrainer_slurm.planner.greedy import greedy_shares
from bftrainer_slurm.planner.instance import anonymous, problem_of
from bftrainer_slurm.planner.lagrangian import Relaxation
from bftrainer_slurm.planner.optimum import GAP, pieces_of
from bftrainer_slurm.planner.packing import Found, is_packed, pack_most, shares_of
from bftrainer_slurm.planner.problem import NodeClass, Plan, Problem, feasible, value
from bftrainer_slurm.planner.segments import groups_of
from bftrainer_slurm.planner.solver import Planner
from bftrainer_slurm.planner.supply import Row
from scripts.planner_bench.instances import after_event, made, made_in_parts
from tests.planner.exact import best_packed
from tests.planner.problems import planned, problems_in_parts
from tests.planner.test_optimum import slack

POOL = frozenset({"n0", "n1", "n2"})
FREE = {"n0": 8, "n1": 3, "n2": 1}
any_problem = settings(max_examples=40, deadline=None)


def parts(*gpus: int, held: str = "", free: dict[str, int] | None = None) -> Problem:
    """Three nodes of 8 GPUs, and a trainer for each size of elements; the first holds nodes."""
    trainers = [
        replace(planned(f"t{at}", held if at == 0 else ""), gpus=size)
        for at, size in enumerate(gpus)
    ]
    classes = (NodeClass("a100", POOL, gpus=8),)
    return Problem(POOL, 120.0, tuple(trainers), classes=classes, free=FREE | (free or {}))


def nodes_of(problem: Problem, plan: Plan) -> list[frozenset[str]]:
    return [plan.assignment[one.key] for one in problem.trainers]


def test_each_size_of_elements_has_a_row_and_a_class_that_is_not_divided_one() -> None:
    rows = parts(1, 2, 4, 0).rows
    assert rows == (Row(0, 1, 12, 3), Row(0, 2, 5, 2), Row(0, 4, 2, 1), Row(0, 8, 1, 1))
    assert [rows[0].taken_by(row) for row in rows] == [1, 2, 4, 8]
    assert [rows[2].taken_by(row) for row in rows] == [0, 0, 1, 2]
    assert Problem(POOL, 120.0, (planned(),)).rows == (Row(0, 0, 3, 3),)


@pytest.mark.parametrize("node", sorted(POOL))
def test_a_trainer_keeps_what_it_has_had_longest_and_starts_where_holes_last(
    planner: Planner, node: str
) -> None:
    wide = parts(1, held="n0 n1 n2", free={"n0": 1, "n1": 1})
    since_s = {"n0": 300.0, "n1": 200.0, "n2": 100.0} | {node: 0.0}
    life_s = dict.fromkeys(POOL, 60.0) | {node: 6000.0}
    for problem in (
        replace(wide, since_s=since_s),
        replace(parts(4, free={"n1": 8, "n2": 8}), life_s=life_s),
    ):
        one = replace(problem.trainers[0], max_nodes=1)
        assert planner.plan(replace(problem, trainers=(one,))).assignment == {"t0": {node}}


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
    """Elements are of so many ``kinds`` at most, above that they are taken as alike."""
    wide = (replace(one, min_nodes=1, max_nodes=5, sizes=()) for one in problem.trainers)
    pool, nodes = sorted(problem.pool), [frozenset[str]()] * len(problem.trainers)
    with mock.patch.object(supply, "MOST_KINDS", kinds):
        sized = replace(problem, trainers=tuple(wide))
        for at in dice.choices(range(len(nodes)), k=10 * len(nodes)) if nodes else ():
            some = dice.sample(pool, dice.randint(0, len(pool)))
            now = sized.trainers[at].current
            its = now.intersection(some) if dice.random() < 0.5 else now.union(some)
            tried = [*nodes[:at], its, *nodes[at + 1 :]]
            nodes = tried if is_packed(sized, tried) else nodes
        assert feasible(sized, shares_of(sized, nodes))


@any_problem
@given(problems_in_parts())
def test_the_bin_packing_milp_finds_the_same_and_the_greedy_plan_finds_room(
    problem: Problem,
) -> None:
    assert is_packed(problem, pack_most(problem, greedy_shares(problem)))
    assume(problem.trainers)
    relaxation = Relaxation(groups_of(problem), problem)
    pieces = pieces_of(relaxation, relaxation.common_price(), math.inf)
    found, proven = bins.solve(problem, pieces, 0.0, 60.0)
    assert proven and found is not None and feasible(problem, shares_of(problem, found))
    assert is_packed(problem, found)
    worth = value(problem, shares_of(problem, found))
    assert math.isclose(worth, best_packed(problem), rel_tol=GAP, abs_tol=slack(problem))


def test_plans_from_event_to_event_are_proven_though_no_element_moves(planner: Planner) -> None:
    """Bins would have too many pairs: the rows alone prove it."""
    problem, dice = made_in_parts(30, 300, 1), Random(1)
    plan = planner.plan(problem)
    for _ in range(3):
        problem = after_event(problem, plan, dice, itertools.count())
        plan = planner.plan(problem)
        assert bins.pairs(problem) > bins.MOST_PAIRS
        assert plan.status == "optimal" and is_packed(problem, nodes_of(problem, plan))


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


# Where one row alone is scarce, the best counts; where they are too many, the solver takes over.

SCARCE = made_in_parts(40, 300, 1)


def found(problem: Problem) -> Found:
    return list(optimum.incumbents(problem, 60.0))[-1]


@pytest.mark.parametrize("limit", ["_AT_ONCE", "_MOST_CELLS", "_MOST_CHOICES", "_MOST_COUNTS"])
def test_counts_are_as_good_a_few_segments_at_a_time_and_where_the_solver_finds_them(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    best = found(SCARCE)
    monkeypatch.setattr(knapsack, limit, 1)
    other = found(SCARCE)
    worth = [value(SCARCE, one.shares) for one in (other, best)]
    assert best.optimal
    assert worth[0] == pytest.approx(worth[1], rel=1e-3)
    assert limit != "_AT_ONCE" or other.shares == best.shares


def test_counts_are_not_looked_for_where_no_row_is_scarce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knapsack, "_best_counts", None)
    assert found(of_many_sizes(20, 200, 128, 1)).optimal


def test_a_plan_of_many_trainers_is_proven() -> None:
    """It has more cells than 100 million, and a second of a processor is enough."""
    assert found(made_in_parts(700, 8000, 100)).optimal
