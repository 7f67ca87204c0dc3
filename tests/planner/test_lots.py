"""Lots: what is held and what is idle of each class; plans on them are plans on the classes."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings

from bftrainer_slurm.planner.greedy_by_class import greedy_shares
from bftrainer_slurm.planner.lots import by_class, few_are_idle, in_lots
from bftrainer_slurm.planner.optimum import solve
from bftrainer_slurm.planner.problem import NodeClass, Problem, feasible, value
from tests.planner.problems import contender, problem, problems_with_classes

CLASSES = (NodeClass("first", frozenset({"n0", "n1", "n2"})), NodeClass("other", frozenset({"n3"})))


def test_a_class_is_parted_into_what_is_held_and_what_is_idle() -> None:
    lots = in_lots(problem(4, contender(current="n0 n2"), classes=CLASSES))
    assert [one.nodes for one in lots.classes] == [{"n0", "n2"}, {"n1"}, set(), {"n3"}]
    assert lots.now(lots.contenders[0]) == (2, 0, 0, 0)


def test_they_are_made_where_few_nodes_are_idle() -> None:
    nodes = [f"n{number}" for number in range(40)]
    classes = (NodeClass("all", frozenset(nodes)),)
    busy = contender(current=" ".join(nodes[:38]), bounds=(1, 40))
    idler = contender(current=" ".join(nodes[:37]), bounds=(1, 40))
    assert few_are_idle(problem(40, busy, classes=classes))
    assert not few_are_idle(problem(40, idler, classes=classes))


def test_lots_are_put_together_by_class() -> None:
    assert by_class((2, 1, 0, 1)) == (3, 1)


@settings(max_examples=150, deadline=None)
@given(problems_with_classes())
def test_a_plan_on_lots_is_worth_as_much_on_the_classes(problem: Problem) -> None:
    lots = in_lots(problem)
    shares = greedy_shares(lots)
    counts = [by_class(share) for share in shares]
    assert feasible(lots, shares)
    assert feasible(problem, counts)
    assert value(problem, counts) == pytest.approx(value(lots, shares))


@settings(max_examples=60, deadline=None)
@given(problems_with_classes())
def test_the_best_plan_on_lots_is_the_best_one(problem: Problem) -> None:
    assume(problem.contenders)
    on_lots, plain = solve(in_lots(problem), 30.0), solve(problem, 30.0)
    assert on_lots.optimal and plain.optimal
    assert on_lots.counts is not None and plain.counts is not None
    reached = value(in_lots(problem), on_lots.counts)
    assert reached == pytest.approx(value(problem, plain.counts), rel=1e-6, abs=1e-6)
