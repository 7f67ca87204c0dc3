"""What a planning problem may be, what its plan is worth, and which nodes are whose."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.placement import place
from bftrainer_slurm.planner.problem import (
    Costs,
    NodeClass,
    PlannedTrainer,
    Problem,
    feasible,
    value,
)
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


def node_class(name: str, nodes: str, **others: object) -> NodeClass:
    return NodeClass(name, frozenset(nodes.split()), **others)  # type: ignore[arg-type]


def on_two(trainer: PlannedTrainer, **second: object) -> Problem:
    """A pool of n0 and n1 in one class, n2 and n3 in the other."""
    classes = (node_class("first", "n0 n1"), node_class("second", "n2 n3", **second))
    return problem(4, trainer, classes=classes)


BOUNDED = problem(5, *(planned(key, bounds=(2, 3)) for key in "ab"))
STANDS_ON_BOTH, ANYWHERE = on_two(planned(current="n0 n2")), on_two(planned(), hardware="old")
BARRED = on_two(replace(planned(), barred=frozenset({"first"})))


@pytest.mark.parametrize(
    ("case", "shares", "is_feasible"),
    [
        (BOUNDED, [(2,), (3,)], True),
        (BOUNDED, [(1,), (0,)], False),  # below the minimum
        (BOUNDED, [(4,), (0,)], False),  # above the maximum
        (BOUNDED, [(3,), (3,)], False),  # more than there are
        (BOUNDED, [(-2,), (2,)], False),
        (BOUNDED, [(2,)], False),
        (STANDS_ON_BOTH, [(1, 1)], True),  # as it is
        (STANDS_ON_BOTH, [(1, 0)], True),
        (STANDS_ON_BOTH, [(2, 1)], True),
        (STANDS_ON_BOTH, [(2, 0)], False),  # migrates
        (STANDS_ON_BOTH, [(3, 1)], False),  # more than there are
        (STANDS_ON_BOTH, [(1, -1)], False),
        (STANDS_ON_BOTH, [(1,)], False),
        (ANYWHERE, [(1, 1)], False),  # kinds of hardware are not mixed
        (ANYWHERE, [(2, 0)], True),
        (BARRED, [(1, 0)], False),
    ],
)
def test_shares_keep_bounds_pool_and_classes(
    case: Problem, shares: list[tuple[int, ...]], is_feasible: bool
) -> None:
    assert feasible(case, shares) is is_feasible


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_nodes": 0}, "min_nodes"),
        ({"min_nodes": 9}, "min_nodes <= max_nodes"),
        ({"rescale_up_s": -1.0}, "rescale_up_s"),
        ({"rescale_up_s": math.nan}, "rescale_up_s"),
        ({"rescale_down_s": math.inf}, "rescale_down_s"),
        ({"paused_s": -1.0}, "paused_s"),
        ({"loss_s": math.inf}, "loss_s"),
        ({"start_cost": math.nan}, "start_cost"),
        ({"curve": ThroughputCurve((0, 1), (0.0, math.nan))}, "finite"),
        ({"curve": ThroughputCurve((0, 1), (0.0, math.inf))}, "finite"),
    ],
)
def test_refuses_a_trainer_that_cannot_be(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(planned(), **changes)  # type: ignore[arg-type]


ONE_CLASS = "each node of the pool must be in one class"


@pytest.mark.parametrize(
    ("nodes", "trainers", "known", "message"),
    [
        *((1, [], {"forward_time_s": s}, "forward_time_s") for s in (0.0, math.nan, math.inf)),
        (1, [], {"life_s": {"n0": math.nan}}, "life_s"),
        (4, [planned("a", "n0 n1"), planned("b", "n1")], {}, "n1 has two trainers"),
        (1, [planned("a", "n7")], {}, "not in the pool"),
        (1, [planned("a"), planned("a")], {}, "same key"),
        (4, [], {"classes": (node_class("some", "n0 n1"),)}, ONE_CLASS),
        (4, [], {"classes": (node_class("some", "n0 n1 n2 n2x"),)}, ONE_CLASS),
        (4, [], {"classes": (node_class("some", "n0 n1 n2 n3 n4"),)}, ONE_CLASS),
        (2, [], {"classes": (node_class("a", "n0 n1"), node_class("b", "n1"))}, "in one class"),
    ],
)
def test_refuses_a_problem_that_cannot_be(
    nodes: int, trainers: list[PlannedTrainer], known: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        problem(nodes, *trainers, **known)  # type: ignore[arg-type]


# Which nodes: nobody moves.

UNDER = {f"n{at}": f"s{at % 2}" for at in range(8)}  # every second one under the same switch
A3, B = planned("a", "n0 n1 n2"), planned("b")
STEEP_B = planned("b", curve=ThroughputCurve((0, 1, 8), (0.0, 3.0, 24.0)))
SOON, ALIKE = {"n0": 60.0, "n1": 900.0}, {"n0": 720.0, "n1": 600.0, "n2": 650.0}
HAD_S = {"n0": 900.0, "n1": 100.0, "n2": 500.0}


@cases(
    "case, shares, nodes",
    nodes_that_others_leave_are_given_on=(
        *(problem(3, A3, B), [1, 2], {"a": {"n0"}, "b": {"n1", "n2"}}),
    ),
    a_trainer_that_shrinks_keeps_what_it_has_had_longest=(
        *(problem(3, A3, life_s=ALIKE, since_s=HAD_S), [2], {"a": {"n1", "n2"}}),
    ),
    it_gives_up_what_ends_first_even_if_it_has_had_that_longest=(
        problem(2, planned("a", "n0 n1"), life_s=SOON, since_s={"n0": 100.0, "n1": 500.0}),
        *([1], {"a": {"n1"}}),
    ),
    what_lasts_goes_first_to_whoever_brings_most=(
        *(problem(2, planned("a"), STEEP_B, life_s=SOON), [1, 1], {"a": {"n0"}, "b": {"n1"}}),
    ),
    idle_nodes_come_first_even_if_they_end_first=(
        *(problem(3, planned("a", "n0 n1"), B, life_s={"n2": 60.0}), [1, 1], {"b": {"n2"}}),
    ),
    a_trainer_that_grows_takes_what_is_under_its_own_switch_first=(
        problem(8, planned("a", "n3"), life_s={"n5": 1.0}, switch_of=UNDER),
        *([4], {"a": {"n1", "n3", "n5", "n7"}}),
    ),
    a_trainer_that_shrinks_gives_up_what_is_under_odd_switches=(
        problem(8, planned("a", "n0 n1 n2 n4"), life_s={"n0": 1.0}, switch_of=UNDER),
        *([3], {"a": {"n0", "n2", "n4"}}),
    ),
    a_new_one_has_the_switch_that_has_just_enough=(
        problem(7, planned("a"), planned("b"), switch_of=UNDER),
        *([3, 4], {"a": {"n1", "n3", "n5"}, "b": {"n0", "n2", "n4", "n6"}}),
    ),
    one_that_no_switch_suffices_has_the_largest_whole=(
        *(problem(7, planned("a"), switch_of=UNDER), [5]),
        {"a": {"n0", "n2", "n4", "n6", "n1"}},
    ),
    a_node_of_unknown_end_lasts=(problem(2, planned(), life_s={"n0": 900.0}), [1], {"a": {"n1"}}),
)
def test_nobody_moves_and(case: Problem, shares: list[int], nodes: dict[str, set[str]]) -> None:
    assert place(case, [(count,) for count in shares]).items() >= nodes.items()
