"""Who explores goes on until there is an answer, so that a look is not broken off."""

from __future__ import annotations

from bftrainer_slurm.planner.curves import Exploration, Fit, Standing, fit
from tests.planner.curves.made import looks

FOUR = fit(looks([4]))
BOTH = fit(looks([4, 8]))
KNOWN = fit(looks((1, 2, 4, 8, 16, 32, 64)))
A, B = 1, 2


def trainers(a: Fit, on: int, b: Fit = FOUR, b_on: int = 4) -> dict[int, Standing]:
    return {A: Standing(a, on, 64), B: Standing(b, b_on, 64)}


def test_the_curves_stay_the_same_while_the_moves_towards_a_plan_are_made() -> None:
    exploration = Exploration()
    before = exploration.curves(trainers(FOUR, 4), 0.0)
    for count in (5, 6, 8):
        assert exploration.curves(trainers(FOUR, count), 1.0) == before


def test_a_size_on_the_way_that_was_measured_before_is_no_answer() -> None:
    """Else it would fall back to the nodes that it had, and set out again, for ever."""
    exploration = Exploration()
    known = fit(looks([8, 9]))
    before = exploration.curves({A: Standing(known, 8, 16)}, 0.0)
    assert before[A].at(16) > exploration.expected[A].at(16)
    assert exploration.curves({A: Standing(known, 9, 16)}, 1.0) == before
    more = fit(looks([8, 9, 16]))
    assert exploration.curves({A: Standing(more, 16, 16)}, 2.0)[A] == more.curve(16)


def test_the_next_one_explores_when_the_first_is_measured() -> None:
    exploration = Exploration()
    before = exploration.curves(trainers(FOUR, 4), 0.0)
    after = exploration.curves(trainers(BOTH, 8), 60.0)
    assert after[B].at(8) > 1.01 * before[B].at(8)


def test_who_loses_nodes_explores_no_more() -> None:
    exploration = Exploration()
    before = exploration.curves(trainers(FOUR, 4), 0.0)
    after = exploration.curves(trainers(FOUR, 2), 1.0)
    assert after[A].at(8) < before[A].at(8)
    assert after[B].at(8) > before[B].at(8)


def test_who_was_not_given_more_nodes_in_ten_minutes_makes_room() -> None:
    exploration = Exploration()
    exploration.curves({A: Standing(FOUR, 4, 64)}, 0.0)
    joined = exploration.curves(trainers(FOUR, 4, fit(looks([2])), 2), 601.0)
    assert joined[A].at(4) < joined[A].at(8)


def test_where_all_is_known_nobody_explores_whatever_the_time() -> None:
    exploration = Exploration()
    before = exploration.curves(trainers(KNOWN, 4, KNOWN), 0.0)
    assert exploration.curves(trainers(KNOWN, 4, KNOWN), 1e6) == before
