"""Why a plan gives a trainer so many nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.limit import Limit
from bftrainer_slurm.planner.problem import (
    Costs,
    NodeClass,
    Plan,
    PlannedTrainer,
    Problem,
    gpus_of,
    value,
)
from bftrainer_slurm.planner.reasons import Reasons, reasons_of
from bftrainer_slurm.planner.solver import Planner
from tests.planner.problems import LINEAR, planned, problem, problems, problems_in_parts

FLAT = ThroughputCurve((0, 2), (0.0, 2.0))


def reasons(planner: Planner, asked: Problem, key: str = "a") -> Reasons:
    return reasons_of(asked, planner.plan(asked))[key]


def test_a_trainer_with_its_most_has_all_that_it_may_have(planner: Planner) -> None:
    found = reasons(planner, problem(8, planned(bounds=(1, 4))))
    assert (found.limit, found.nodes, found.better) == (Limit.MOST, 4, None)


def test_a_trainer_that_has_the_whole_pool_can_have_no_more(planner: Planner) -> None:
    found = reasons(planner, problem(3, planned()))
    assert (found.limit, found.nodes, found.usable) == (Limit.POOL, 3, 3)


def test_a_trainer_whose_least_is_above_the_pool_waits(planner: Planner) -> None:
    found = reasons(planner, problem(3, planned(bounds=(4, 8))))
    assert (found.limit, found.nodes, found.usable) == (Limit.POOL, 0, 3)


def test_nodes_that_bring_nothing_stay_free(planner: Planner) -> None:
    found = reasons(planner, problem(8, planned(curve=FLAT)))
    assert (found.limit, found.nodes, found.free) == (Limit.NO_GAIN, 2, 6)


def test_a_change_of_size_can_cost_more_than_it_brings(planner: Planner) -> None:
    slow = planned(current="n0 n1", costs=(100.0, 0.0), bounds=(2, 3))
    found = reasons(planner, problem(3, slow))
    assert (found.limit, found.nodes, found.better) == (Limit.COST, 2, 3)
    assert found.gain == 120.0 - 200.0  # a node more for 120 s; two nodes stand still for 100 s


def test_nodes_that_others_use_better_are_theirs(planner: Planner) -> None:
    strong = planned("b", "n2 n3", (2, 2), ThroughputCurve((0, 2), (0.0, 9.0)), (0.0, 0.0))
    found = reasons(planner, problem(4, planned(current="n0 n1", costs=(0.0, 0.0)), strong))
    assert (found.limit, found.nodes, found.better) == (Limit.OTHERS, 2, 3)
    assert (found.gain, found.loss) == (120.0, 9.0 * 120.0)  # b would have to stop


def test_where_no_one_trainer_has_enough_nodes_to_give_there_is_no_loss(planner: Planner) -> None:
    small = [planned(key, bounds=(1, 1), curve=LINEAR) for key in "bcd"]
    wide = planned(bounds=(3, 3), curve=ThroughputCurve((0, 3), (0.0, 2.0)))
    found = reasons(planner, problem(3, wide, *small))
    assert (found.limit, found.nodes, found.loss) == (Limit.OTHERS, 0, None)
    assert found.price * 3 > found.gain > 0  # type: ignore[operator]


def test_nodes_of_another_kind_and_barred_ones_do_not_count(planner: Planner) -> None:
    classes = (
        NodeClass("old", frozenset({"n0", "n1"}), "old"),
        NodeClass("new", frozenset({"n2", "n3", "n4"}), "new"),
        NodeClass("out", frozenset({"n5"}), "new"),
    )
    choosy = replace(planned(), barred=frozenset({"out"}))
    found = reasons(planner, problem(6, choosy, classes=classes))
    assert (found.limit, found.nodes, found.usable, found.free) == (Limit.POOL, 3, 3, 0)


def test_a_plan_that_is_not_the_best_is_said_to_be_none() -> None:
    asked = problem(4, planned())
    worse = Plan({"a": frozenset({"n0"})}, 0.0, 0.0, "greedy")
    found = reasons_of(asked, worse)["a"]
    assert (found.limit, found.better) == (Limit.UNPROVEN, 4)


def test_nobody_wants_nothing() -> None:
    assert reasons_of(problem(4), Plan({}, 0.0, 0.0, "optimal")) == {}


@settings(max_examples=60, deadline=None)
@given(problems(tuple(Costs)))
def test_the_reasons_fit_any_optimal_plan(planner: Planner, asked: Problem) -> None:
    plan = planner.plan(asked)
    found = reasons_of(asked, plan)
    assert found.keys() == plan.assignment.keys()
    for one in found.values():
        own = next(size for size in one.sizes if size.nodes == one.nodes)
        assert own.worth == pytest.approx(one.forward_s * own.rate - own.rescale)
        assert one.limit is not Limit.UNPROVEN
        if one.limit in (Limit.COST, Limit.NO_GAIN):
            assert one.gain is not None
            assert one.gain <= 1e-4 * one.forward_s * max(size.rate for size in one.sizes)
    total = math.fsum(
        size.worth for one in found.values() for size in one.sizes if size.nodes == one.nodes
    )
    shares = [(len(plan.assignment[trainer.key]),) for trainer in asked.trainers]
    assert total == pytest.approx(value(asked, shares), rel=1e-6, abs=1e-6)


def shared(*trainers: PlannedTrainer, free: Mapping[str, int]) -> Problem:
    """Nodes of eight GPUs, of which no ordinary job has so many."""
    part = NodeClass("a100", frozenset(free), "a100", 8)
    return Problem(frozenset(free), 120.0, trainers, classes=(part,), free=free)


def test_of_shared_nodes_those_count_that_have_room_for_its_gpus(planner: Planner) -> None:
    one = replace(planned("a", bounds=(1, 2)), gpus=2)
    other = replace(planned("b", "n0", (1, 1)), gpus=3)
    found = reasons(planner, shared(one, other, free={"n0": 3, "n1": 2, "n2": 1}))
    assert (found.gpus, found.limit, found.nodes) == (2, Limit.OTHERS, 1)
    assert (found.pool, found.usable, found.free) == (3, 2, 0)
    assert (found.better, found.gain, found.loss) == (2, 120.0, 125.0)  # b would have to stop


def test_who_cannot_make_room_for_its_gpus_is_not_asked_to(planner: Planner) -> None:
    one = replace(planned("a", bounds=(1, 1), curve=ThroughputCurve((0, 1), (0.0, 1.5))), gpus=2)
    small = [replace(planned(key, "n0", (1, 1)), gpus=1) for key in "bc"]
    found = reasons(planner, shared(one, *small, free={"n0": 2}))
    assert (found.limit, found.nodes, found.loss) == (Limit.OTHERS, 0, None)
    assert found.price == pytest.approx(2 * 120.0, rel=0.3)  # both of its GPUs


def test_a_trainer_of_whole_nodes_counts_those_that_nobody_has_a_part_of(planner: Planner) -> None:
    part = replace(planned("b", "n0", (1, 1)), gpus=1)
    found = reasons(planner, shared(planned(), part, free={"n0": 8, "n1": 8, "n2": 7}))
    assert (found.gpus, found.nodes, found.usable, found.free) == (0, 1, 2, 0)
    assert (found.limit, found.better, found.loss) == (Limit.OTHERS, 2, 125.0)


@settings(max_examples=60, deadline=None)
@given(problems_in_parts())
def test_on_shared_nodes_the_reasons_count_what_the_plan_can_give(
    planner: Planner, asked: Problem
) -> None:
    plan = planner.plan(asked)
    has, ours = gpus_of(asked, plan) or (0, 0)
    assert 0 <= ours <= has
    for trainer in asked.trainers:
        found, own = reasons_of(asked, plan)[trainer.key], plan.assignment[trainer.key]
        assert found.nodes + found.free <= found.usable
        left = {node: asked.units_on(node) for node in asked.pool}
        for one in asked.trainers:
            for node in plan.assignment[one.key]:
                left[node] -= asked.class_of[node].units_of(one.gpus)
        fit = (node for node in left if left[node] >= asked.class_of[node].units_of(trainer.gpus))
        assert found.free <= len(frozenset(fit) - own)
