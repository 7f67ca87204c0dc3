"""Which nodes: nobody moves."""

from __future__ import annotations

from bftrainer_slurm.planner.placement import place
from tests.planner.problems import contender, problem


def test_a_trainer_that_grows_keeps_all_its_nodes() -> None:
    placed = place(problem(4, contender("a", "n2 n3")), [3])
    assert placed == {"a": {"n0", "n2", "n3"}}


def test_a_trainer_that_shrinks_gets_no_other_node() -> None:
    placed = place(problem(4, contender("a", "n1 n2 n3")), [1])
    assert placed["a"] < {"n1", "n2", "n3"}


def test_idle_nodes_come_before_those_that_others_have_yet_to_leave() -> None:
    placed = place(problem(4, contender("a", "n0 n1 n2"), contender("b")), [1, 1])
    assert placed["b"] == {"n3"}


def test_nodes_that_others_leave_are_given_on() -> None:
    placed = place(problem(3, contender("a", "n0 n1 n2"), contender("b")), [1, 2])
    assert placed == {"a": {"n0"}, "b": {"n1", "n2"}}


def test_a_trainer_that_stops_has_no_node() -> None:
    assert place(problem(2, contender("a", "n0 n1")), [0]) == {"a": frozenset()}
