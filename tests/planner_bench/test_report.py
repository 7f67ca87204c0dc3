"""What is said of the times is true of them: bounds are marked, failures left out, targets held."""

from __future__ import annotations

from collections import Counter

import pytest

from scripts.planner_bench.measure import Comparison, Run, Series
from scripts.planner_bench.report import ratio, side_by_side, targets

TARGETED = "10x64"


def compared(*runs: tuple[float, str], size: str = TARGETED) -> Comparison:
    return Comparison(size, [Run(*run) for run in runs], [0.1 for _ in runs], True)


def planned(*seconds: float, status: str = "optimal", target_s: float | None = 0.5) -> Series:
    return Series("100x5,000", "fresh", [*seconds], Counter({status: len(seconds)}), target_s)


def test_the_ratio_is_that_of_the_medians() -> None:
    assert str(ratio(compared((1.0, "optimal"), (5.0, "optimal"), (9.0, "optimal")))) == "50"


def test_a_ratio_whose_median_was_cut_off_is_a_lower_bound() -> None:
    assert str(ratio(compared((1.0, "optimal"), (30.0, "limit"), (30.0, "limit")))) == ">=300"


def test_a_ratio_whose_median_was_not_cut_off_is_exact() -> None:
    assert str(ratio(compared((1.0, "optimal"), (2.0, "optimal"), (30.0, "limit")))) == "20"


def test_failed_runs_say_nothing_about_speed_and_are_told() -> None:
    crashed = (0.01, "the solver died of signal 11")
    one = compared((1.0, "optimal"), crashed)
    assert str(ratio(one)) == "10"
    assert side_by_side([one]).endswith("1 of 2 equal, 1 the solver died of signal 11")
    assert ratio(compared(crashed)) is None


@pytest.mark.parametrize(("seconds", "met"), [(9.9, False), (10.1, True)])
def test_a_hundred_times_faster_is_asked_for(seconds: float, met: bool) -> None:
    assert [one.met for one in targets([compared((seconds, "optimal"))], [])] == [met]


def test_other_sizes_have_no_target() -> None:
    assert targets([compared((1.0, "optimal"), size="5x16")], [planned(9.0, target_s=None)]) == []


@pytest.mark.parametrize(
    ("series", "met"),
    [
        (planned(0.4, 0.4), True),
        (planned(0.4, 0.6), False),
        (planned(0.4, status="feasible"), False),
    ],
)
def test_a_plan_is_to_be_fast_and_proven(series: Series, met: bool) -> None:
    assert [one.met for one in targets([], [series])] == [met]
