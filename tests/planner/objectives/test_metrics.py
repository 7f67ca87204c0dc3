"""What each objective makes of a trainer."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.objectives import Facts, find
from tests.planner.objectives.made import STEEP, amdahl, facts

METRICS = ("throughput", "speedup", "efficiency", "goodput")
NAMES = [
    metric + modifiers
    for metric in METRICS
    for modifiers in ("", "+finish", "+fairness", "+finish+fairness", "+fairness+finish")
]


def curve(name: str, one: Facts) -> ThroughputCurve:
    return find(name)([one])[0]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)  # of each, and most of them are sums of the same
@given(trainers=st.lists(facts(), max_size=5))
def test_every_objective_gives_each_trainer_a_finite_curve(
    name: str, trainers: list[Facts]
) -> None:
    curves = find(name)(trainers)
    assert len(curves) == len(trainers)
    for one, result in zip(trainers, curves, strict=True):
        assert set(one.curve.nodes) <= set(result.nodes)
        assert all(0 <= value < math.inf for value in result.values)


@pytest.mark.parametrize("name", [name for name in NAMES if "fairness" not in name])
@settings(max_examples=25)
@given(one=facts(), factor=st.sampled_from([0.5, 3.0]))
def test_weight_multiplies_the_curve(name: str, one: Facts, factor: float) -> None:
    heavier = curve(name, replace(one, weight=factor * one.weight))
    expected = [factor * value for value in curve(name, one).values]
    assert heavier.values == pytest.approx(expected)


def test_throughput_is_samples_a_second() -> None:
    assert curve("throughput", Facts(STEEP, 1, 8, weight=2)).at(4) == 800


def test_speedup_counts_nodes_at_the_rate_of_the_least_size() -> None:
    assert curve("speedup", Facts(STEEP, 2, 8)).at(8) == 8


@pytest.mark.parametrize("metric", ["speedup", "efficiency", "speedup+fairness"])
def test_four_gpus_count_as_much_whatever_the_size_of_a_trainers_parts(metric: str) -> None:
    ones = Facts(STEEP, 1, 4, share=1 / 8, user="a")
    four = Facts(STEEP, 1, 1, share=4 / 8, user="b")
    small, large = find(metric)([ones, four])
    assert small.at(4) == pytest.approx(large.at(1))


def test_four_nodes_count_as_much_whether_a_trainer_could_do_with_one() -> None:
    assert curve("speedup", Facts(STEEP, 4, 8)).at(4) == curve("speedup", Facts(STEEP, 1, 8)).at(4)


@pytest.mark.parametrize("metric", ["speedup", "efficiency"])
@given(unit=st.sampled_from([1e-6, 1.0, 1e6]))
def test_big_and_small_models_compare(metric: str, unit: float) -> None:
    values = curve(metric, Facts(amdahl(0.05, unit), 1, 64)).values
    assert values == pytest.approx(curve(metric, Facts(amdahl(0.05), 1, 64)).values)


def test_speedup_of_a_trainer_without_progress_is_nothing() -> None:
    still = ThroughputCurve((0, 4), (0.0, 0.0))
    assert curve("speedup", Facts(still, 1, 4)).values == (0.0, 0.0)


def test_efficiency_equals_speedup_where_scaling_is_perfect() -> None:
    one = Facts(STEEP, 2, 8)
    efficient, fast = curve("efficiency", one), curve("speedup", one)
    assert [efficient.at(n) for n in (2, 4, 8)] == [fast.at(n) for n in (2, 4, 8)]


def test_efficiency_is_greatest_where_half_of_the_nodes_is_lost() -> None:
    one = Facts(amdahl(1 / 16), 1, 64)  # Amdahl: efficiency 1/2 on 17 nodes
    result = curve("efficiency", one)
    assert max(result.nodes, key=result.at) == 16


def test_efficiency_gives_nodes_to_those_that_use_them_well() -> None:
    good, bad = (Facts(amdahl(serial), 1, 64) for serial in (0.01, 0.1))
    gains = [
        curve("efficiency", one).at(16) - curve("efficiency", one).at(8) for one in (good, bad)
    ]
    assert gains[0] > 0 > gains[1]


@pytest.mark.parametrize(
    ("done", "worth"), [(0.0, 1), (0.5, 2), (0.7, 1 / 0.3), (1.0, 4), (None, 1)]
)
def test_what_is_nearly_done_counts_more_up_to_four_times(done: float | None, worth: float) -> None:
    found = curve("speedup+finish", Facts(STEEP, 1, 8, done=done)).at(1)
    assert found == pytest.approx(worth)
