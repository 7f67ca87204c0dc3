"""Which nodes: nobody moves."""

from __future__ import annotations

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.placement import place
from tests.planner.problems import planned, problem


def test_a_trainer_that_grows_keeps_all_its_nodes() -> None:
    placed = place(problem(4, planned("a", "n2 n3")), [(3,)])
    assert placed == {"a": {"n0", "n2", "n3"}}


def test_a_trainer_that_shrinks_gets_no_other_node() -> None:
    placed = place(problem(4, planned("a", "n1 n2 n3")), [(1,)])
    assert placed["a"] < {"n1", "n2", "n3"}


def test_idle_nodes_come_before_those_that_others_have_yet_to_leave() -> None:
    placed = place(problem(4, planned("a", "n0 n1 n2"), planned("b")), [(1,), (1,)])
    assert placed["b"] == {"n3"}


def test_nodes_that_others_leave_are_given_on() -> None:
    placed = place(problem(3, planned("a", "n0 n1 n2"), planned("b")), [(1,), (2,)])
    assert placed == {"a": {"n0"}, "b": {"n1", "n2"}}


def test_a_trainer_that_stops_has_no_node() -> None:
    assert place(problem(2, planned("a", "n0 n1")), [(0,)]) == {"a": frozenset()}


def test_a_trainer_that_shrinks_gives_up_what_ends_first() -> None:
    case = problem(3, planned("a", "n0 n1 n2"), life_s={"n0": 60.0, "n1": 900.0, "n2": 600.0})
    assert place(case, [(2,)]) == {"a": {"n1", "n2"}}


def test_a_trainer_that_shrinks_keeps_what_it_has_had_longest() -> None:
    lives = {"n0": 720.0, "n1": 600.0, "n2": 650.0}  # about as long
    since = {"n0": 900.0, "n1": 100.0, "n2": 500.0}
    case = problem(3, planned("a", "n0 n1 n2"), life_s=lives, since_s=since)
    assert place(case, [(2,)]) == {"a": {"n1", "n2"}}


def test_it_gives_up_what_ends_first_even_if_it_has_had_that_longest() -> None:
    ends, since = {"n0": 60.0, "n1": 900.0}, {"n0": 100.0, "n1": 500.0}
    case = problem(2, planned("a", "n0 n1"), life_s=ends, since_s=since)
    assert place(case, [(1,)]) == {"a": {"n1"}}


def test_what_lasts_goes_first_to_whoever_brings_most() -> None:
    steep = planned("b", curve=ThroughputCurve((0, 1, 8), (0.0, 3.0, 24.0)))
    case = problem(2, planned("a"), steep, life_s={"n0": 60.0, "n1": 900.0})
    assert place(case, [(1,), (1,)]) == {"a": {"n0"}, "b": {"n1"}}


def test_idle_nodes_come_first_even_if_they_end_first() -> None:
    case = problem(3, planned("a", "n0 n1"), planned("b"), life_s={"n2": 60.0})
    assert place(case, [(1,), (1,)])["b"] == {"n2"}


def test_a_node_of_unknown_end_lasts() -> None:
    assert place(problem(2, planned("a"), life_s={"n0": 900.0}), [(1,)]) == {"a": {"n1"}}
