"""What is known of a curve after some measurements, and how well."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.planner.curves import Measurement, fit
from bftrainer_slurm.planner.curves.fit import covariance
from bftrainer_slurm.planner.curves.law import PRIOR, log_speed_ups

SIZES = (1, 2, 4, 8, 16, 32, 64)


def law(nodes: float, unit: float = 1000.0, serial: float = 0.02, pairs: float = 0.0) -> float:
    """Samples/s after the universal scalability law."""
    return unit * nodes / (1 + serial * (nodes - 1) + pairs * nodes * (nodes - 1))


def looks(sizes: Iterable[int], serial: float = 0.02, pairs: float = 0.0) -> list[Measurement]:
    """Five minutes on each size, three times, without noise."""
    return [Measurement(n, law(n, serial=serial, pairs=pairs), 300.0) for n in sizes] * 3


measurements = st.builds(
    Measurement,
    nodes=st.integers(1, 5000),
    samples_per_s=st.floats(1e-9, 1e12),
    seconds=st.floats(1e-3, 1e7),
)


@given(st.lists(measurements, max_size=12), st.integers(1, 10_000))
def test_whatever_is_measured_the_curve_is_finite_and_positive(
    measured: list[Measurement], most: int
) -> None:
    found = fit(measured)
    curve = found.curve(most)
    assert curve.nodes[-1] == most
    assert all(0 < value < math.inf for value in curve.values[1:])
    assert 0 <= found.uncertainty(most) < math.inf


@given(
    st.lists(measurements, min_size=1, max_size=8),
    st.randoms(use_true_random=False),
    st.sampled_from([1e-6, 1e6]),
)
def test_neither_the_order_of_measurements_nor_the_unit_of_samples_matters(
    measured: list[Measurement], dice: random.Random, factor: float
) -> None:
    mixed = dice.sample(measured, len(measured))
    scaled = [Measurement(one.nodes, factor * one.samples_per_s, one.seconds) for one in mixed]
    expected = [factor * value for value in fit(measured).curve(64).values]
    assert fit(scaled).curve(64).values == pytest.approx(expected)


def test_a_curve_is_drawn_at_powers_of_two_the_measured_sizes_and_the_most() -> None:
    assert fit(looks((3, 99))).curve(20).nodes == (0, 1, 2, 3, 4, 8, 16, 20)


def test_without_a_measurement_it_is_about_amdahls_law_with_five_percent_in_no_unit() -> None:
    curve = fit([]).curve(64)
    amdahl = [law(n, unit=1.0, serial=0.05) for n in SIZES]
    assert [curve.at(n) for n in SIZES] == pytest.approx(amdahl, rel=0.1)
    assert (fit([]).unit, curve.at(1)) == (None, 1.0)


@pytest.mark.parametrize(("serial", "pairs"), [(0.0, 0.0), (0.02, 0.0), (0.2, 0.0), (0.03, 5e-4)])
def test_curves_after_the_law_are_met_between_and_beyond(serial: float, pairs: float) -> None:
    curve = fit(looks((1, 4, 16, 32), serial, pairs)).curve(64)
    for n in SIZES:
        error = 0.05 if n <= 32 else 0.25
        assert curve.at(n) == pytest.approx(law(n, serial=serial, pairs=pairs), rel=error)


def test_what_was_measured_often_wins_over_the_law() -> None:
    dented = [*looks((1, 2, 8, 16)), *[Measurement(4, 0.85 * law(4), 300.0)] * 12]
    assert fit(dented).curve(16).at(4) == pytest.approx(0.85 * law(4), rel=0.03)


@pytest.mark.parametrize(
    "beside",
    [[Measurement(4, 0.5 * law(4), 300.0)], [Measurement(4, 0.5 * law(4), 15.0)] * 3],
    ids=["a straggler among several looks", "the warm up"],
)
def test_no_say_has(beside: list[Measurement]) -> None:
    assert fit([*looks([4]), *beside]).curve(4).at(4) == pytest.approx(law(4), rel=0.02)


def test_the_first_short_look_is_not_believed_as_much_as_the_law_between_good_ones() -> None:
    short = Measurement(8, 0.6 * law(8), 15.0)
    assert fit([*looks((1, 2, 4, 16, 32)), short]).curve(32).at(8) > 0.85 * law(8)


def test_uncertainty_grows_away_from_what_was_measured_and_falls_with_time_and_looks() -> None:
    doubts = [fit(looks([4])).uncertainty(n, above=4) for n in (4, 8, 16, 64)]
    assert doubts == sorted(doubts)
    assert doubts[0] == 0 < doubts[1]
    short, long = Measurement(4, 1.0, 5.0), Measurement(4, 1.0, 500.0)
    doubts = [fit(looks).uncertainty(4) for looks in ([short], [long], [long] * 4)]
    assert doubts[0] > doubts[1] > doubts[2]


def test_uncertainty_is_as_large_as_the_errors() -> None:
    dice = np.random.default_rng(7)
    places = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    scores = []
    for _ in range(300):
        # A curve as believed in before anything is measured, by lot.
        row = dice.choice(len(PRIOR), p=PRIOR)
        deviations = dice.multivariate_normal(np.zeros(6), covariance(places, places))
        logs = log_speed_ups(places)[row] + deviations + dice.uniform(-9, 9)
        sizes = dice.choice(5, 2, replace=False)
        measured = [
            Measurement(int(places[k]), float(np.exp(logs[k] + dice.normal(0, 0.03))), 100.0)
            for k in sizes
            for _ in range(3)
        ]
        found = fit(measured)
        scores.append((np.log(found.curve(64).at(32)) - logs[5]) / found.uncertainty(32))
    assert 0.85 < np.std(scores) < 1.15


def test_optimism_raises_only_what_is_above_and_ends_at_twice_the_nodes() -> None:
    found = fit(looks([5]))
    hopeful, expected = found.curve(64, optimism=2.0, above=5), found.curve(64)
    assert 10 in hopeful.nodes
    assert [hopeful.at(n) / expected.at(n) for n in (1, 2, 4, 5)] == [1.0] * 4
    raised = [hopeful.at(n) / expected.at(n) for n in (16, 32, 64)]
    assert hopeful.at(8) > expected.at(8)
    assert raised[0] > 1 and raised == pytest.approx([raised[0]] * 3)


@pytest.mark.parametrize(
    ("nodes", "rate", "seconds"),
    [(0, 1.0, 1.0), (1, 0.0, 1.0), (1, math.nan, 1.0), (1, math.inf, 1.0), (1, 1.0, 0.0)],
)
def test_what_cannot_be_measured_is_refused(nodes: int, rate: float, seconds: float) -> None:
    with pytest.raises(ValueError, match="a measurement needs"):
        Measurement(nodes, rate, seconds)


def test_many_sizes_keep_those_measured_longest() -> None:
    measured = [Measurement(n, law(n), 1.0 + n) for n in range(1, 200)]
    found = fit(measured)
    assert not found.has_measured(1)
    assert found.has_measured(199)
