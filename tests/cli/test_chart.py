"""Strips and bars in plain characters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.cli.chart import MARGIN, bars, resampled, strip

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


@pytest.mark.parametrize("values", [[], [0.0], [3.0] * 500])
def test_bars_fit_the_room(values: list[float]) -> None:
    lines = bars(values, 40, "nodes")
    assert len(lines) == 5
    assert all(len(line) <= 40 + MARGIN for line in lines)


def test_the_highest_bar_fills_its_rows_and_the_scale_says_how_much_that_is() -> None:
    lines = bars([0, 8], 2, "nodes")
    assert [line.partition("|")[2] for line in lines] == [" █"] * 5
    assert [line.partition("|")[0].strip() for line in lines] == ["8", "", "nodes", "", "0"]
