"""What a planning problem may be, and what its plan is worth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.problem import Costs, feasible, value
from tests.planner.problems import planned, problem


def test_a_plan_is_worth_its_throughput_over_the_forward_time() -> None:
    assert value(problem(4, planned("a"), planned("b")), [(3,), (1,)]) == 120 * 4


def test_growing_costs_throughput_on_the_current_nodes() -> None:
    assert value(problem(4, planned(current="n0 n1")), [(3,)]) == 120 * 3 - 10 * 2


def test_shrinking_costs_throughput_on_the_current_nodes() -> None:
    assert value(problem(4, planned(current="n0 n1")), [(1,)]) == 120 * 1 - 5 * 2


def test_stopping_costs_as_much_as_shrinking() -> None:
    assert value(problem(4, planned(current="n0 n1")), [(0,)]) == -5 * 2


def test_starting_is_free() -> None:
    assert value(problem(4, planned()), [(2,)]) == 120 * 2


def test_staying_is_free() -> None:
    assert value(problem(4, planned(current="n0 n1")), [(2,)]) == 120 * 2


def test_with_pauses_a_rescaled_trainer_stands_still_at_its_new_size() -> None:
    case = problem(4, planned(current="n0 n1"), costs=Costs.PAUSE)
    assert value(case, [(3,)]) == (120 - 10) * 3
    assert value(case, [(1,)]) == (120 - 5) * 1


def test_with_pauses_a_trainer_that_still_stands_still_brings_less_as_it_is() -> None:
    still = replace(planned(current="n0 n1"), paused_s=7.0)
    case = problem(4, still, costs=Costs.PAUSE)
    assert [value(case, [(count,)]) for count in (1, 2, 3)] == [113 * 1, 113 * 2, 110 * 3]


def test_with_pauses_stopping_is_free_and_no_pause_outlasts_the_forward_time() -> None:
    still = replace(planned(current="n0 n1"), paused_s=900.0)
    case = problem(4, still, costs=Costs.PAUSE)
    assert [value(case, [(count,)]) for count in (0, 1, 2, 3)] == [0, 0, 0, 0]


def test_with_pauses_being_started_costs_something() -> None:
    case = problem(4, replace(planned(), start_cost=50.0), costs=Costs.PAUSE)
    assert [value(case, [(count,)]) for count in (0, 2)] == [0, 120 * 2 - 50]


@pytest.mark.parametrize(
    ("costs", "count", "worth"),
    [
        (Costs.PAUSE, 2, 120 * 2),  # it stays
        (Costs.PAUSE, 3, (120 - 10) * 3 - 40 * 2),
        (Costs.PAUSE, 1, (120 - 5) * 1 - 40 * 2),
        (Costs.PAUSE, 0, -40 * 2),
        (Costs.PAPER, 3, 120 * 3 - (10 + 40) * 2),
        (Costs.PAPER, 0, -(5 + 40) * 2),
    ],
)
def test_any_change_loses_what_is_trained_again(costs: Costs, count: int, worth: float) -> None:
    loser = replace(planned(current="n0 n1"), loss_s=40.0)
    assert value(problem(4, loser, costs=costs), [(count,)]) == worth


def test_who_has_no_nodes_loses_nothing() -> None:
    assert value(problem(4, replace(planned(), loss_s=40.0)), [(2,)]) == 120 * 2


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
