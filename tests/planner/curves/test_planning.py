"""Which curves a plan is made with, who explores, and when a curve is fitted again."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.curves import (
    Exploration,
    Fit,
    LatestFit,
    Measurement,
    Standing,
    fit,
    planning_curves,
)
from bftrainer_slurm.planner.curves.planning import concave
from tests.controller.worlds import cases
from tests.planner.curves.test_fit import looks
from tests.planner.problems import curves

KNOWN = fit(looks((1, 2, 4, 8, 16, 32, 64)))
UNKNOWN = fit(looks([4]))
BOTH = fit(looks([4, 8]))


@given(curves())
def test_the_concave_curve_is_nowhere_lower_and_its_slopes_never_rise(
    curve: ThroughputCurve,
) -> None:
    hull = concave(curve)
    slack = 1e-9 * max(curve.values)
    assert all(hull.at(n) >= curve.at(n) - slack for n in range(curve.nodes[-1] + 1))
    bends, points = (list(zip(one.nodes, one.values, strict=True)) for one in (hull, curve))
    assert set(bends) <= set(points)
    slopes = [(y1 - y0) / (x1 - x0) for (x0, y0), (x1, y1) in pairwise(bends)]
    assert all(later <= earlier + slack for earlier, later in pairwise(slopes))


STANDS = Standing(UNKNOWN, 4, 64)


@cases(
    "trainers, explore",
    whose_next_nodes_are_least_known=([Standing(KNOWN, 4, 64), STANDS], [1]),
    one_at_a_time=([STANDS] * 10, [0]),
    of_many_one_in_twenty=([STANDS] * 60, [0, 1, 2]),
    not_where_all_is_known=([Standing(KNOWN, 4, 64)] * 3, []),
    not_before_it_is_measured_where_it_is=([Standing(UNKNOWN, 8, 64)], []),
    not_beyond_its_most_nodes=([Standing(UNKNOWN, 4, 4)], []),
    while_it_has_an_hour_left=([Standing(UNKNOWN, 4, 64, 3600.0)], [0]),
    not_if_it_is_nearly_done=([Standing(UNKNOWN, 4, 64, 300.0)], []),
)
def test_a_trainer_explores(trainers: list[Standing], explore: list[int]) -> None:
    planned = planning_curves(trainers)
    expected = [concave(one.fit.curve(one.max_nodes)).at(one.max_nodes) for one in trainers]
    more = [curve.at(one.max_nodes) for one, curve in zip(trainers, planned, strict=True)]
    assert [k for k, one in enumerate(expected) if more[k] > 1.01 * one] == explore


def test_an_unknown_trainer_is_planned_in_the_unit_of_the_others() -> None:
    slow, fast = (fit([Measurement(1, rate, 1e4)] * 9) for rate in (10.0, 1000.0))
    planned = planning_curves([Standing(one, 0, 64) for one in (slow, fast, fit([]))])
    assert planned[2].at(1) == pytest.approx(100.0, rel=0.01)
    assert planning_curves([Standing(fit([]), 0, 64)])[0].at(1) == 1.0  # nobody's is known


# Who explores goes on until there is an answer, so that a look is not broken off.

A, B = 1, 2


def trainers(a: Fit, on: int, b: Fit = UNKNOWN, b_on: int = 4) -> dict[int, Standing]:
    return {A: Standing(a, on, 64), B: Standing(b, b_on, 64)}


def test_a_size_on_the_way_that_was_measured_before_is_no_answer() -> None:
    """Else it would fall back to the nodes that it had, and set out again, for ever."""
    exploration = Exploration()
    known = fit(looks([8, 9]))
    before = exploration.curves({A: Standing(known, 8, 16)}, 0.0)
    assert before[A].at(16) > exploration.expected[A].at(16)
    assert exploration.curves({A: Standing(known, 9, 16)}, 1.0) == before
    more = fit(looks([8, 9, 16]))
    assert exploration.curves({A: Standing(more, 16, 16)}, 2.0)[A] == more.curve(16)


@pytest.mark.parametrize(("fitted", "on", "now_s"), [(BOTH, 8, 60.0), (UNKNOWN, 2, 1.0)])
def test_the_next_one_explores_not_on_the_way_but_when_the_first_is_measured_or_loses_nodes(
    fitted: Fit, on: int, now_s: float
) -> None:
    exploration = Exploration()
    before = exploration.curves(trainers(UNKNOWN, 4), 0.0)
    for count in (5, 6, 8):
        assert exploration.curves(trainers(UNKNOWN, count), 1.0) == before
    after = exploration.curves(trainers(fitted, on), now_s)
    assert after[A].at(8) < before[A].at(8)
    assert after[B].at(8) > 1.01 * before[B].at(8)


def test_who_was_not_given_more_nodes_in_ten_minutes_makes_room() -> None:
    exploration = Exploration()
    exploration.curves({A: Standing(UNKNOWN, 4, 64)}, 0.0)
    joined = exploration.curves(trainers(UNKNOWN, 4, fit(looks([2])), 2), 601.0)
    assert joined[A].at(4) < joined[A].at(8)


# When a trainer's curve is fitted again.

MINUTE = [Measurement(4, 400.0, 30.0)] * 2


@cases(
    "before, now, is_news",
    nothing=(MINUTE, list(MINUTE), False),
    noise=(MINUTE, [Measurement(4, 400.0 * 1.05, 30.0)] * 2, False),
    a_new_size_of_some_seconds=(MINUTE, [*MINUTE, Measurement(8, 700.0, 20.0)], False),
    a_new_size_of_half_a_minute=(MINUTE, [*MINUTE, Measurement(8, 700.0, 30.0)], True),
    much_more_time=(MINUTE, MINUTE * 2, True),
    a_trainer_that_has_changed=(MINUTE, [Measurement(4, 200.0, 30.0)] * 2, True),
    one_straggler_of_several_looks=(
        *(MINUTE * 2, [*MINUTE, MINUTE[0], Measurement(4, 100.0, 30.0)], False),
    ),
)
def test_news_is(before: list[Measurement], now: list[Measurement], is_news: bool) -> None:
    latest = LatestFit()
    kept = latest.update(before)
    fitted = latest.update(now)
    assert (fitted is not kept) is is_news
    assert not is_news or fitted.curve(16).values == fit(now).curve(16).values
