"""What is held and what is idle of each class: plans on these halves are plans on the classes."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings

from bftrainer_slurm.planner.greedy import greedy_shares
from bftrainer_slurm.planner.held_and_idle import divided, few_are_idle, undivided
from bftrainer_slurm.planner.optimum import GAP, incumbents
from bftrainer_slurm.planner.problem import NodeClass, Problem, feasible, value
from tests.planner.problems import planned, problem, problems_with_classes
from tests.planner.test_optimum import slack

CLASSES = (NodeClass("first", frozenset({"n0", "n1", "n2"})), NodeClass("other", frozenset({"n3"})))


def test_a_class_is_divided_into_what_is_held_and_what_is_idle() -> None:
    halves = divided(problem(4, planned(current="n0 n2"), classes=CLASSES))
    assert [one.nodes for one in halves.classes] == [{"n0", "n2"}, {"n1"}, set(), {"n3"}]
    assert halves.now(halves.trainers[0]) == (2, 0, 0, 0)


def test_it_is_worth_while_where_few_nodes_are_idle() -> None:
    nodes = [f"n{number}" for number in range(40)]
    classes = (NodeClass("all", frozenset(nodes)),)
    busy = planned(current=" ".join(nodes[:38]), bounds=(1, 40))
    idler = planned(current=" ".join(nodes[:37]), bounds=(1, 40))
    assert few_are_idle(problem(40, busy, classes=classes))
    assert not few_are_idle(problem(40, idler, classes=classes))


def test_halves_are_put_together() -> None:
    assert undivided((2, 1, 0, 1)) == (3, 1)


@settings(max_examples=60, deadline=None)
@given(problems_with_classes())
def test_a_plan_on_halves_is_worth_as_much_on_the_classes(problem: Problem) -> None:
    halves = divided(problem)
    shares = greedy_shares(halves)
    counts = [undivided(share) for share in shares]
    assert feasible(halves, shares)
    assert feasible(problem, counts)
    assert value(problem, counts) == pytest.approx(value(halves, shares))


@settings(max_examples=30, deadline=None)
@given(problems_with_classes())
def test_the_best_plan_on_halves_is_the_best_one(problem: Problem) -> None:
    assume(problem.trainers)
    (*_, on_halves), (*_, plain) = incumbents(divided(problem), 30.0), incumbents(problem, 30.0)
    assert on_halves.optimal and plain.optimal
    reached = value(divided(problem), on_halves.shares)
    assert reached == pytest.approx(value(problem, plain.shares), rel=GAP, abs=slack(problem))
