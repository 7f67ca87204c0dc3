"""Why a plan gives a trainer so many nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

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
    value,
)
from bftrainer_slurm.planner.reasons import reasons_of
from bftrainer_slurm.planner.solver import Planner
from tests.controller.worlds import cases
from tests.planner.problems import planned, problem, problems


def shared(*trainers: PlannedTrainer, free: Mapping[str, int]) -> Problem:
    """Nodes of eight GPUs, of which no ordinary job has so many."""
    part = NodeClass("a100", frozenset(free), "a100", 8)
    return Problem(frozenset(free), 120.0, trainers, classes=(part,), free=free)


def at_most(nodes: int, throughput: float) -> ThroughputCurve:
    return ThroughputCurve((0, nodes), (0.0, throughput))


STRONG = planned("b", "n2 n3", (2, 2), at_most(2, 9.0), (0.0, 0.0))
SMALL = [planned(key, bounds=(1, 1)) for key in "bcd"]
CHOOSY = replace(planned(), barred=frozenset({"out"}))
OLD_AND_NEW = (
    NodeClass("old", frozenset({"n0", "n1"}), "old"),
    NodeClass("new", frozenset({"n2", "n3", "n4"}), "new"),
    NodeClass("out", frozenset({"n5"}), "new"),
)


def of_parts(key: str, gpus: int, current: str = "", most: int = 1, **known: Any) -> PlannedTrainer:
    return replace(planned(key, current, (1, most), **known), gpus=gpus)


@cases(
    "asked, limit, known",
    it_has_all_that_it_may_have=(
        *(problem(8, planned(bounds=(1, 4))), Limit.MOST, {"nodes": 4, "better": None}),
    ),
    it_has_the_whole_pool=(problem(3, planned()), Limit.POOL, {"nodes": 3, "usable": 3}),
    its_least_is_above_the_pool=(
        *(problem(3, planned(bounds=(4, 8))), Limit.POOL, {"nodes": 0, "usable": 3}),
    ),
    more_nodes_bring_nothing_and_stay_free=(
        *(problem(8, planned(curve=at_most(2, 2.0))), Limit.NO_GAIN, {"nodes": 2, "free": 6}),
    ),
    a_change_of_size_costs_more_than_it_brings=(  # a node more; two nodes stand still for 100 s
        *(problem(3, planned("a", "n0 n1", (2, 3), costs=(100.0, 0.0))), Limit.COST),
        {"nodes": 2, "better": 3, "gain": 120.0 - 200.0},
    ),
    others_use_them_better=(  # b would have to stop
        *(problem(4, planned(current="n0 n1", costs=(0.0, 0.0)), STRONG), Limit.OTHERS),
        {"nodes": 2, "better": 3, "gain": 120.0, "loss": 9.0 * 120.0},
    ),
    no_one_of_others_has_enough_to_give=(
        *(problem(3, planned(bounds=(3, 3), curve=at_most(3, 2.0)), *SMALL), Limit.OTHERS),
        {"nodes": 0, "loss": None, "gain": 240.0, "price": pytest.approx(120.0, rel=0.3)},
    ),
    other_nodes_are_of_another_kind_or_barred=(
        *(problem(6, CHOOSY, classes=OLD_AND_NEW), Limit.POOL),
        {"nodes": 3, "usable": 3, "free": 0},
    ),
    of_shared_nodes_few_have_room_for_its_gpus=(  # b would have to stop
        shared(of_parts("a", 2, "", 2), of_parts("b", 3, "n0"), free={"n0": 3, "n1": 2, "n2": 1}),
        Limit.OTHERS,
        {"gpus": 2, "nodes": 1, "pool": 3, "usable": 2, "free": 0, "better": 2, "gain": 120.0}
        | {"loss": 125.0},
    ),
    of_shared_nodes_those_with_room_stay_free_if_they_bring_nothing=(
        shared(of_parts("a", 2, "", 2, curve=at_most(1, 1.0)), free={"n0": 3, "n1": 2, "n2": 1}),
        *(Limit.NO_GAIN, {"nodes": 1, "usable": 2, "free": 1}),
    ),
    no_one_of_others_has_enough_gpus_to_give=(  # the price is of both of its GPUs
        shared(
            of_parts("a", 2, curve=at_most(1, 1.5)),
            *(of_parts(key, 1, "n0") for key in "bc"),
            free={"n0": 2},
        ),
        Limit.OTHERS,
        {"nodes": 0, "loss": None, "price": pytest.approx(2 * 120.0, rel=0.3)},
    ),
    it_needs_whole_nodes_and_others_have_parts=(
        *(shared(planned(), of_parts("b", 1, "n0"), free={"n0": 8, "n1": 8, "n2": 7}),),
        Limit.OTHERS,
        {"gpus": 0, "nodes": 1, "usable": 2, "free": 0, "better": 2, "loss": 125.0},
    ),
)
def test_it_has_no_other_size_because(
    planner: Planner, asked: Problem, limit: Limit, known: dict[str, object]
) -> None:
    found = reasons_of(asked, planner.plan(asked))["a"]
    assert (found.limit, {name: getattr(found, name) for name in known}) == (limit, known)


def test_a_plan_that_is_not_the_best_is_said_to_be_none() -> None:
    worse = Plan({"a": frozenset({"n0"})}, 0.0, 0.0, "greedy")
    found = reasons_of(problem(4, planned()), worse)["a"]
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
