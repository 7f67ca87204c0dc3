"""What is said of the times is true of them: bounds are marked, crashes left out, targets held."""

from __future__ import annotations

from collections import Counter

import pytest

from bftrainer_slurm.planner.problem import Plan
from scripts.planner_bench.apart import Run
from scripts.planner_bench.instances import made
from scripts.planner_bench.measure import Comparison, Kind, Pair, Series, Size, agree
from scripts.planner_bench.report import ratio, targets

PROBLEM = made(2, 4, 0)
TARGETED = Size(10, 64)


def compared(*runs: tuple[float, str], size: Size = TARGETED) -> Comparison:
    plan = Plan({}, 0.0, 0.1, "optimal")
    return Comparison(
        size, tuple(Pair(Run(seconds, status, None), plan, True) for seconds, status in runs)
    )


def planned(*seconds: float, status: str = "optimal", target_s: float | None = 0.5) -> Series:
    kind = Kind("100x5,000", lambda seed: PROBLEM, target_s)
    return Series(kind, "fresh", seconds, Counter({status: len(seconds)}))


def test_the_ratio_is_that_of_the_medians() -> None:
    assert str(ratio(compared((1.0, "optimal"), (5.0, "optimal"), (9.0, "optimal")))) == "50"


def test_a_ratio_whose_median_was_cut_off_is_a_lower_bound() -> None:
    assert str(ratio(compared((1.0, "optimal"), (30.0, "limit"), (30.0, "limit")))) == ">=300"


def test_a_ratio_whose_median_was_not_cut_off_is_exact() -> None:
    assert str(ratio(compared((1.0, "optimal"), (2.0, "optimal"), (30.0, "limit")))) == "20"


def test_crashed_runs_say_nothing_about_speed() -> None:
    assert str(ratio(compared((1.0, "optimal"), (0.01, "crashed")))) == "10"
    assert ratio(compared((0.01, "crashed"))) is None


@pytest.mark.parametrize(("seconds", "met"), [(9.9, False), (10.1, True)])
def test_a_hundred_times_faster_is_asked_for(seconds: float, met: bool) -> None:
    assert [one.met for one in targets([compared((seconds, "optimal"))], [])] == [met]


def test_other_sizes_have_no_target() -> None:
    assert (
        targets([compared((1.0, "optimal"), size=Size(5, 16))], [planned(9.0, target_s=None)]) == []
    )


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


def test_an_optimum_that_differs_is_noticed() -> None:
    nodes = tuple(one.current for one in PROBLEM.trainers)
    assert not agree(PROBLEM, Run(1.0, "optimal", nodes), Plan({}, 1e9, 0.1, "optimal"))


def test_a_cut_off_run_may_be_worse_but_not_better() -> None:
    nodes = tuple(one.current for one in PROBLEM.trainers)
    assert agree(PROBLEM, Run(1.0, "limit", nodes), Plan({}, 1e9, 0.1, "optimal"))
    assert not agree(PROBLEM, Run(1.0, "limit", nodes), Plan({}, -1e9, 0.1, "optimal"))
