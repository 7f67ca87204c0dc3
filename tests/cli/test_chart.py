"""Strips in plain characters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.cli.chart import curve, resampled, strip

VALUES = st.lists(st.floats(0, 1e9), max_size=200)


def test_a_strip_rises_with_its_values_and_shows_the_least_of_them() -> None:
    assert strip([0, 0.01, 4, 8], 4) == " ▁▄█"
    assert strip([0, 0.01, 4, 8], 4, blocks=False) == " .=#"


@given(VALUES, st.integers(0, 200))
def test_a_strip_has_as_many_characters_as_there_is_room(values: list[float], room: int) -> None:
    assert len(strip(values, room)) == room


@given(VALUES, st.integers(1, 200))
def test_fitted_values_lie_within_the_given_ones(values: list[float], room: int) -> None:
    assert all(0 <= one <= max(values, default=0) * 1.001 for one in resampled(values, room))


@pytest.mark.parametrize("sizes", [1, 2, 10, 40])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e12])
def test_a_curve_fits_a_terminal(sizes: int, unit: float) -> None:
    points = [
        {"nodes": 2 * n + 1, "rate": unit * (n + 1), "measured": n % 3 == 0} for n in range(sizes)
    ]
    lines = curve(points, "samples/s")
    assert len(lines) == 1 + min(8, sizes)
    assert all(len(line) <= 90 and line.isprintable() for line in lines)
