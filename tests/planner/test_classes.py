"""Classes of nodes: who may have a share of them, and where it is placed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer_slurm.planner.instance import anonymous, problem_of
from bftrainer_slurm.planner.placement import place
from bftrainer_slurm.planner.problem import NodeClass, PlannedTrainer, Problem, feasible
from bftrainer_slurm.planner.solver import Planner
from tests.planner.problems import planned, problem


def node_class(name: str, nodes: str, **others: object) -> NodeClass:
    return NodeClass(name, frozenset(nodes.split()), **others)  # type: ignore[arg-type]


def on_two(trainer: PlannedTrainer, **second: object) -> Problem:
    """A pool of n0 and n1 in one class, n2 and n3 in the other."""
    classes = (node_class("first", "n0 n1"), node_class("second", "n2 n3", **second))
    return problem(4, trainer, classes=classes)


@pytest.mark.parametrize(
    ("share", "is_feasible"),
    [
        ((0, 0), True),
        ((1, 1), True),  # as it is
        ((1, 0), True),
        ((2, 1), True),
        ((2, 0), False),  # migrates
        ((3, 0), False),
        ((3, 1), False),  # more than there are
        ((1, -1), False),
        ((1,), False),
    ],
)
def test_no_node_migrates_from_class_to_class(share: tuple[int, ...], is_feasible: bool) -> None:
    assert feasible(on_two(planned(current="n0 n2")), [share]) is is_feasible


@pytest.mark.parametrize("share", [(1, 1), (2, 2)])
def test_kinds_are_not_mixed(share: tuple[int, int]) -> None:
    assert not feasible(on_two(planned(), hardware="old"), [share])


def test_a_class_that_a_trainer_is_barred_from_is_not_for_it(planner: Planner) -> None:
    case = on_two(replace(planned(), barred=frozenset({"first"})))
    assert not feasible(case, [(1, 0)])
    assert planner.plan(case).assignment == {"a": {"n2", "n3"}}


def test_a_trainer_leaves_the_nodes_that_it_is_barred_from(planner: Planner) -> None:
    case = on_two(replace(planned(current="n0 n2"), barred=frozenset({"first"})))
    assert planner.plan(case).assignment == {"a": {"n2"}}


def test_nodes_are_placed_within_their_class() -> None:
    assert place(on_two(planned(current="n1")), [(1, 2)]) == {"a": {"n1", "n2", "n3"}}


def test_the_child_is_told_all_that_counts() -> None:
    trainer = replace(planned(current="n0 n2"), paused_s=3.0, barred=frozenset({"second"}))
    case = on_two(trainer, hardware="fast")
    sent = problem_of(anonymous(case))
    (arrived,) = sent.trainers
    assert [sent.worth(arrived, n) for n in range(4)] == [case.worth(trainer, n) for n in range(4)]
    assert (sent.rows, sent.now(arrived)) == (case.rows, case.now(trainer))
    assert [one.hardware for one in sent.classes] == ["", "fast"]
    assert arrived.barred == {"1"}


@pytest.mark.parametrize("nodes", ["n0 n1", "n0 n1 n2 n2x", "n0 n1 n2 n3 n4"])
def test_classes_part_the_pool(nodes: str) -> None:
    with pytest.raises(ValueError, match="each node of the pool must be in one class"):
        problem(4, classes=(node_class("some", nodes),))


def test_refuses_a_node_of_two_classes() -> None:
    classes = (node_class("one", "n0 n1"), node_class("other", "n1"))
    with pytest.raises(ValueError, match="in one class"):
        problem(2, classes=classes)
