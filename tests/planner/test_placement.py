"""Which nodes: nobody moves."""

from __future__ import annotations

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.placement import place
from bftrainer_slurm.planner.problem import Problem
from tests.controller.worlds import cases
from tests.planner.problems import planned, problem

UNDER = {f"n{at}": f"s{at % 2}" for at in range(8)}  # every second one under the same switch
A3, B = planned("a", "n0 n1 n2"), planned("b")
STEEP_B = planned("b", curve=ThroughputCurve((0, 1, 8), (0.0, 3.0, 24.0)))
SOON, ALIKE = {"n0": 60.0, "n1": 900.0}, {"n0": 720.0, "n1": 600.0, "n2": 650.0}
HAD_S = {"n0": 900.0, "n1": 100.0, "n2": 500.0}


@cases(
    "case, counts, nodes",
    a_trainer_that_grows_keeps_all_its_nodes=(
        *(problem(4, planned("a", "n2 n3")), [3], {"a": {"n0", "n2", "n3"}}),
    ),
    idle_nodes_come_before_those_that_others_have_yet_to_leave=(
        *(problem(4, A3, B), [1, 1], {"b": {"n3"}}),
    ),
    nodes_that_others_leave_are_given_on=(
        *(problem(3, A3, B), [1, 2], {"a": {"n0"}, "b": {"n1", "n2"}}),
    ),
    a_trainer_that_stops_has_no_node=(problem(3, A3), [0], {"a": set()}),
    a_trainer_that_shrinks_gives_up_what_ends_first=(
        *(problem(3, A3, life_s=SOON | {"n2": 600.0}), [2], {"a": {"n1", "n2"}}),
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
def test_whatever_changes(case: Problem, counts: list[int], nodes: dict[str, set[str]]) -> None:
    assert place(case, [(count,) for count in counts]).items() >= nodes.items()


def test_a_trainer_that_shrinks_gets_no_other_node() -> None:
    placed = place(problem(4, planned("a", "n1 n2 n3")), [(1,)])
    assert placed["a"] < {"n1", "n2", "n3"}
