"""Who gets how many: small cases that can be checked by hand, for optimum, greedy and baseline."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.greedy import greedy_shares
from bftrainer_slurm.planner.problem import Problem, Share
from bftrainer_slurm.planner.solver import Planner
from bftrainer_slurm.replay.policies import equal_shares
from tests.planner.problems import planned, problem

STEEP = ThroughputCurve((0, 1, 8), (0.0, 3.0, 24.0))
SATURATED = ThroughputCurve((0, 1, 2, 8), (0.0, 1.0, 1.5, 1.5))
LATE = ThroughputCurve((0, 1, 3, 4, 8), (0.0, 0.1, 0.2, 8.0, 8.0))  # not concave
WORSE_WITH_MORE = ThroughputCurve((0, 2, 4), (0.0, 2.0, 1.0))

CASES = {
    "nobody": (problem(3), []),
    "no nodes": (problem(0, planned()), [0]),
    "as many as there are": (problem(5, planned()), [5]),
    "as many as it may have": (problem(9, planned(bounds=(1, 4))), [4]),
    "a minimum that does not fit": (problem(3, planned(bounds=(4, 8))), [0]),
    "to the one that gains most": (problem(4, planned("a"), planned("b", curve=STEEP)), [0, 4]),
    "no more than bring anything": (problem(8, planned(curve=SATURATED)), [2]),
    "across the flat part of a curve": (problem(4, planned(curve=LATE)), [4]),
    "not past a curve's summit": (problem(4, planned(curve=WORSE_WITH_MORE)), [2]),
    "what is idle beside those that stay": (
        problem(
            4,
            planned("a", "n0 n1 n2", (3, 4), ThroughputCurve((0, 4), (0.0, 1.28)), (8.0, 7.0)),
            planned("b", "", (2, 2), ThroughputCurve((0, 2), (0.0, 1.0)), (8.0, 7.0)),
        ),
        [4, 0],
    ),
    "no size between those that it can train on": (problem(7, planned(sizes=(2, 4, 8))), [4]),
    "what one cannot use to the other": (
        problem(7, planned("a", sizes=(2, 4, 8), curve=STEEP), planned("b")),
        [4, 3],
    ),
    "at once to a size that it can train on, if it has lost a node": (
        problem(3, planned(current="n0 n1 n2", sizes=(2, 4, 8), costs=(300.0, 300.0))),
        [2],
    ),
    "up rather than down, if there is a node": (
        problem(4, planned(current="n0 n1 n2", sizes=(2, 4, 8), costs=(0.0, 0.0))),
        [4],
    ),
    "nothing, if it can train on more only": (problem(3, planned(current="n0", sizes=(4, 8))), [0]),
    "what one has to another that gains more": (
        problem(4, planned("a", "n0 n1 n2 n3"), planned("b", curve=STEEP)),
        [0, 4],
    ),
    "what the first has left to the other": (
        problem(4, planned("a", bounds=(1, 3), curve=STEEP), planned("b")),
        [3, 1],
    ),
    "rescaling that does not pay": (
        problem(4, planned(current="n0 n1 n2", costs=(60.0, 0.0))),
        [3],
    ),
}


def counts_of(shares: list[Share]) -> list[int]:
    return [count for (count,) in shares]


@pytest.mark.parametrize(("case", "counts"), CASES.values(), ids=CASES)
def test_the_optimum(planner: Planner, case: Problem, counts: list[int]) -> None:
    plan = planner.plan(case)
    assert [len(plan.assignment[one.key]) for one in case.trainers] == counts


@pytest.mark.parametrize(("case", "counts"), CASES.values(), ids=CASES)
def test_greedy_finds_the_optimum_of_easy_cases(case: Problem, counts: list[int]) -> None:
    assert counts_of(greedy_shares(case)) == counts


@pytest.mark.parametrize("shares_of", [greedy_shares, equal_shares])
def test_a_trainer_outside_its_bounds_is_brought_inside(
    shares_of: Callable[[Problem], list[Share]],
) -> None:
    case = problem(4, planned("a", "n0 n1 n2", (1, 2)), planned("b", "n3", (5, 5)))
    assert counts_of(shares_of(case)) == [2, 0]


@pytest.mark.parametrize(
    ("bounds", "nodes", "counts"),
    [
        ([(1, 8), (1, 8)], 6, [3, 3]),
        ([(1, 8), (1, 8)], 7, [4, 3]),
        ([(1, 2), (1, 8)], 8, [2, 6]),
        ([(4, 8), (4, 8)], 6, [6, 0]),
        ([(1, 2), (1, 2)], 9, [2, 2]),
    ],
)
def test_equal_share_hands_out_in_turn(
    bounds: list[tuple[int, int]], nodes: int, counts: list[int]
) -> None:
    trainers = [planned(str(index), bounds=pair) for index, pair in enumerate(bounds)]
    assert counts_of(equal_shares(problem(nodes, *trainers))) == counts
