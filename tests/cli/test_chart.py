"""Strips in plain characters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.cli.chart import resampled, strip

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
