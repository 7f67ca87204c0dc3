"""What a planning problem may be, and what its plan is worth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.problem import Costs, PlannedTrainer, feasible, value
from tests.controller.worlds import cases
from tests.planner.problems import planned, problem

TWO = planned(current="n0 n1")  # growing costs it 10 s, shrinking 5 s
LOSER = replace(TWO, loss_s=40.0)
PAPER, PAUSE = Costs.PAPER, Costs.PAUSE


@cases(
    "trainer, costs, worths",
    growing_shrinking_and_stopping_cost_throughput_on_the_current_nodes=(
        *(TWO, PAPER, {3: 120 * 3 - 10 * 2, 2: 120 * 2, 1: 120 * 1 - 5 * 2, 0: -5 * 2}),
    ),
    starting_is_free=(planned(), PAPER, {2: 120 * 2}),
    with_pauses_a_rescaled_trainer_stands_still_at_its_new_size=(
        *(TWO, PAUSE, {3: (120 - 10) * 3, 1: (120 - 5) * 1}),
    ),
    one_that_still_stands_still_brings_less_as_it_is=(
        *(replace(TWO, paused_s=7.0), PAUSE, {1: 113 * 1, 2: 113 * 2, 3: 110 * 3}),
    ),
    stopping_is_free_and_no_pause_outlasts_the_forward_time=(
        *(replace(TWO, paused_s=900.0), PAUSE, {0: 0, 1: 0, 2: 0, 3: 0}),
    ),
    being_started_costs_something=(
        *(replace(planned(), start_cost=50.0), PAUSE, {0: 0, 2: 120 * 2 - 50}),
    ),
    any_change_loses_what_is_trained_again=(
        *(LOSER, PAUSE, {2: 240, 3: 110 * 3 - 40 * 2, 1: 115 * 1 - 40 * 2, 0: -40 * 2}),
    ),
    in_the_papers_costs_too=(LOSER, PAPER, {3: 120 * 3 - 50 * 2, 0: -45 * 2}),
    who_has_no_nodes_loses_nothing=(replace(planned(), loss_s=40.0), PAPER, {2: 120 * 2}),
)
def test_what_a_trainers_share_is_worth(
    trainer: PlannedTrainer, costs: Costs, worths: dict[int, float]
) -> None:
    case = problem(4, trainer, costs=costs)
    assert {count: value(case, [(count,)]) for count in worths} == worths


def test_a_plan_is_worth_what_all_bring() -> None:
    assert value(problem(4, planned("a"), planned("b")), [(3,), (1,)]) == 120 * 4


@pytest.mark.parametrize(
    ("counts", "is_feasible"),
    [
        ([0, 0], True),
        ([2, 3], True),
        ([1, 0], False),  # below the minimum
        ([4, 0], False),  # above the maximum
        ([3, 3], False),  # more than there are
        ([-2, 2], False),
        ([2], False),
    ],
)
def test_counts_keep_bounds_and_pool(counts: list[int], is_feasible: bool) -> None:
    bounded = [planned(key, bounds=(2, 3)) for key in "ab"]
    assert feasible(problem(5, *bounded), [(count,) for count in counts]) is is_feasible


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_nodes": 0}, "min_nodes"),
        ({"min_nodes": 9}, "min_nodes <= max_nodes"),
        ({"rescale_up_s": -1.0}, "rescale_up_s"),
        ({"rescale_up_s": float("nan")}, "rescale_up_s"),
        ({"rescale_down_s": float("inf")}, "rescale_down_s"),
        ({"paused_s": -1.0}, "paused_s"),
        ({"loss_s": float("inf")}, "loss_s"),
        ({"start_cost": float("nan")}, "start_cost"),
        ({"curve": ThroughputCurve((0, 1), (0.0, float("nan")))}, "finite"),
        ({"curve": ThroughputCurve((0, 1), (0.0, float("inf")))}, "finite"),
    ],
)
def test_refuses_a_trainer_that_cannot_be(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(planned(), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_refuses_a_forward_time_that_cannot_be(seconds: float) -> None:
    with pytest.raises(ValueError, match="forward_time_s"):
        problem(1, forward_time_s=seconds)


def test_refuses_a_life_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="life_s"):
        problem(1, life_s={"n0": float("nan")})


def test_refuses_a_node_with_two_trainers() -> None:
    with pytest.raises(ValueError, match="n1 has two trainers"):
        problem(4, planned("a", "n0 n1"), planned("b", "n1"))


def test_refuses_a_node_outside_the_pool() -> None:
    with pytest.raises(ValueError, match="not in the pool"):
        problem(1, planned("a", "n7"))


def test_refuses_two_trainers_of_one_name() -> None:
    with pytest.raises(ValueError, match="same key"):
        problem(1, planned("a"), planned("a"))
