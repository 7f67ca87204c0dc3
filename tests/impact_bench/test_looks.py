"""slurmctld is stopped so that it looks when it is to."""

from __future__ import annotations

import pytest

from scripts.impact_bench.looks import common_begin, last_due, stop_after

LOOK_S = 1000.0


def test_it_is_stopped_in_the_middle_of_the_last_nap_before_a_look() -> None:
    assert stop_after(LOOK_S, LOOK_S) - LOOK_S == pytest.approx(0.95, abs=0.003)


def test_where_that_has_passed_it_is_stopped_in_a_later_second() -> None:
    stop_s = stop_after(LOOK_S, LOOK_S + 20.7)
    assert LOOK_S + 20.7 <= stop_s <= LOOK_S + 21.71


@pytest.mark.parametrize(
    ("dues_s", "interval_s"),
    [
        ([1020.0, 1025.0], 30),
        ([1025.0, 1020.0], 30),
        ([1001.0, 1030.5], 30),  # the first is due too soon
        ([1000.4, 1000.9], 1),
    ],
)
def test_both_sides_begin_just_after_the_last_one_is_due(
    dues_s: list[float], interval_s: float
) -> None:
    begin_s = common_begin(dues_s, interval_s, 1000.0)
    assert 0.1 <= begin_s - last_due(dues_s[-1], begin_s, interval_s) <= 1.1
    assert all(last_due(due_s, begin_s, interval_s) >= 1006 for due_s in dues_s)


def test_both_sides_begin_well_within_a_second_as_slurm_reckons_in_whole_ones() -> None:
    assert common_begin([1020.0, 1029.95], 30, 1000.0) % 1 == pytest.approx(0.3)


def test_a_pass_is_due_each_interval() -> None:
    assert last_due(1000.0, 1095.0, 30) == 1090.0
    assert last_due(1000.0, 1000.0, 30) == 1000.0
