"""Which curves a plan is made with, and who explores."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.curves import Fit, Measurement, Standing, fit, planning_curves
from bftrainer_slurm.planner.curves.planning import concave
from tests.planner.curves.made import looks, measurements
from tests.planner.problems import curves

KNOWN = fit(looks((1, 2, 4, 8, 16, 32, 64)))
UNKNOWN = fit(looks([4]))


def explores(trainers: list[Standing]) -> list[bool]:
    """Which trainers are planned with more than their fit."""
    planned = planning_curves(trainers)
    return [
        curve.at(one.max_nodes) > 1.01 * concave(one.fit.curve(one.max_nodes)).at(one.max_nodes)
        for one, curve in zip(trainers, planned, strict=True)
    ]


@given(st.lists(st.lists(measurements, max_size=5).map(fit), max_size=4))
def test_the_curves_of_those_that_do_not_explore_are_concave(fits: list[Fit]) -> None:
    for curve in planning_curves([Standing(one, 0, 64) for one in fits]):
        points = list(zip(curve.nodes, curve.values, strict=True))
        slopes = [(y1 - y0) / (x1 - x0) for (x0, y0), (x1, y1) in pairwise(points)]
        slack = 1e-9 * max(map(abs, slopes))
        assert all(later <= earlier + slack for earlier, later in pairwise(slopes))


@given(curves())
def test_the_concave_curve_is_nowhere_lower(curve: ThroughputCurve) -> None:
    hull = concave(curve)
    slack = 1e-9 * max(curve.values)
    assert all(hull.at(n) >= curve.at(n) - slack for n in range(curve.nodes[-1] + 1))
    assert set(zip(hull.nodes, hull.values, strict=True)) <= set(
        zip(curve.nodes, curve.values, strict=True)
    )


def test_the_trainer_whose_next_nodes_are_least_known_explores() -> None:
    assert explores([Standing(KNOWN, 4, 64), Standing(UNKNOWN, 4, 64)]) == [False, True]


def test_one_explores_at_a_time() -> None:
    assert sum(explores([Standing(UNKNOWN, 4, 64)] * 10)) == 1


def test_of_many_one_in_twenty_explores() -> None:
    assert sum(explores([Standing(UNKNOWN, 4, 64)] * 60)) == 3


def test_nobody_explores_where_all_is_known() -> None:
    assert not any(explores([Standing(KNOWN, 4, 64)] * 3))


def test_nobody_explores_before_it_is_measured_where_it_is() -> None:
    assert explores([Standing(UNKNOWN, 8, 64)]) == [False]


def test_exploring_changes_nothing_on_the_nodes_it_has() -> None:
    curve = planning_curves([Standing(UNKNOWN, 4, 64)])[0]
    expected = UNKNOWN.curve(64)
    assert [curve.at(n) for n in (1, 2, 4)] == [expected.at(n) for n in (1, 2, 4)]


def test_nobody_explores_beyond_its_most_nodes() -> None:
    assert explores([Standing(UNKNOWN, 4, 4)]) == [False]


@pytest.mark.parametrize(("remaining_s", "does"), [(None, True), (3600.0, True), (300.0, False)])
def test_who_is_nearly_done_does_not_explore(remaining_s: float | None, does: bool) -> None:
    assert explores([Standing(UNKNOWN, 4, 64, remaining_s)]) == [does]


def test_an_unknown_trainer_is_planned_in_the_unit_of_the_others() -> None:
    slow, fast = (fit([Measurement(1, rate, 1e4)] * 9) for rate in (10.0, 1000.0))
    planned = planning_curves([Standing(one, 0, 64) for one in (slow, fast, fit([]))])
    assert planned[2].at(1) == pytest.approx(100.0, rel=0.01)


def test_where_nothing_is_known_of_anybody_speed_ups_are_planned() -> None:
    assert planning_curves([Standing(fit([]), 0, 64)])[0].at(1) == 1.0
