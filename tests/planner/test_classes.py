"""Classes of nodes: what a share of them is worth, who may have it, and where it is placed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from bftrainer_slurm.planner.placement import place
from bftrainer_slurm.planner.problem import Contender, NodeClass, Problem, feasible, value
from bftrainer_slurm.planner.solver import Planner
from bftrainer_slurm.planner.wire import from_wire, to_wire
from tests.planner.problems import contender, problem


def node_class(name: str, nodes: str, **others: object) -> NodeClass:
    return NodeClass(name, frozenset(nodes.split()), **others)  # type: ignore[arg-type]


def on_two(trainer: Contender, **second: object) -> Problem:
    """A pool of n0 and n1 in one class, n2 and n3 in the other."""
    classes = (node_class("first", "n0 n1"), node_class("second", "n2 n3", **second))
    return problem(4, trainer, classes=classes)


def test_hardware_has_a_factor_on_the_throughput() -> None:
    case = on_two(replace(contender(), hardware={"": 1.0, "old": 0.5}), hardware="old")
    assert [value(case, [share]) for share in ((2, 0), (0, 2))] == [120 * 2, 120 * 2 * 0.5]


def test_nodes_on_several_switches_bring_less() -> None:
    case = on_two(replace(contender(), spread=0.8), switch="other")
    assert [value(case, [share]) for share in ((2, 0), (1, 1))] == [120 * 2, 120 * 2 * 0.8]


def test_a_node_is_charged_for_its_expected_end() -> None:
    case = on_two(contender(), life_s=60.0)
    ends = 1 - math.exp(-120 / 60)
    charge = (120 - 60 * ends) + ends * 5.0  # of a node that brings 1 a second
    assert value(case, [(0, 2)]) == pytest.approx(120 * 2 - 2 * charge)


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
        (2, False),
    ],
)
def test_no_node_migrates_from_class_to_class(
    share: int | tuple[int, ...], is_feasible: bool
) -> None:
    assert feasible(on_two(contender(current="n0 n2")), [share]) is is_feasible


@pytest.mark.parametrize("share", [(1, 1), (2, 2)])
def test_kinds_are_not_mixed(share: tuple[int, int]) -> None:
    assert not feasible(on_two(contender(), hardware="old"), [share])


def test_a_kind_that_a_trainer_does_not_name_is_not_for_it(planner: Planner) -> None:
    case = on_two(replace(contender(), hardware={"old": 1.0}), hardware="old")
    assert not feasible(case, [(1, 0)])
    assert planner.plan(case).assignment == {"a": {"n2", "n3"}}


def test_a_class_that_a_trainer_is_barred_from_is_not_for_it(planner: Planner) -> None:
    case = on_two(replace(contender(), barred=frozenset({"first"})))
    assert not feasible(case, [(1, 0)])
    assert planner.plan(case).assignment == {"a": {"n2", "n3"}}


def test_a_trainer_leaves_the_nodes_that_it_is_barred_from(planner: Planner) -> None:
    case = on_two(replace(contender(current="n0 n2"), barred=frozenset({"first"})))
    assert planner.plan(case).assignment == {"a": {"n2"}}


def test_a_trainer_that_pays_dearly_for_rescaling_gets_the_nodes_that_stay(
    planner: Planner,
) -> None:
    classes = (node_class("short", "n0 n1", life_s=60.0), node_class("long", "n2 n3"))
    dear, cheap = contender("a", "", (2, 2), costs=(90.0, 90.0)), contender("b", "", (2, 2))
    plan = planner.plan(problem(4, dear, cheap, classes=classes))
    assert plan.assignment == {"a": {"n2", "n3"}, "b": {"n0", "n1"}}


def test_nodes_are_placed_within_their_class() -> None:
    assert place(on_two(contender(current="n1")), [(1, 2)]) == {"a": {"n1", "n2", "n3"}}


def test_the_wire_keeps_all_that_counts() -> None:
    trainer = replace(contender(current="n0 n2"), hardware={"": 0.5}, spread=0.9, paused_s=3.0)
    case = on_two(trainer, switch="other", life_s=math.inf)
    sent = from_wire(to_wire(case))
    shares = [(0, 0), (1, 1), (2, 1), (1, 0)]
    assert [value(sent, [one]) for one in shares] == [value(case, [one]) for one in shares]
    assert sent.sizes() == case.sizes()


@pytest.mark.parametrize("nodes", ["n0 n1", "n0 n1 n2 n2x", "n0 n1 n2 n3 n4"])
def test_classes_part_the_pool(nodes: str) -> None:
    with pytest.raises(ValueError, match="each node of the pool must be in one class"):
        problem(4, classes=(node_class("some", nodes),))


def test_refuses_a_node_of_two_classes() -> None:
    classes = (node_class("one", "n0 n1"), node_class("other", "n1"))
    with pytest.raises(ValueError, match="in one class"):
        problem(2, classes=classes)


@pytest.mark.parametrize("changes", [{"spread": 0.0}, {"spread": 1.5}, {"hardware": {"": -1.0}}])
def test_refuses_factors_that_cannot_be(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"spread|hardware"):
        replace(contender(), **changes)  # type: ignore[arg-type]


def test_refuses_a_class_whose_life_cannot_be() -> None:
    with pytest.raises(ValueError, match="life_s must be 0 s or more"):
        node_class("some", "n0", life_s=math.nan)
