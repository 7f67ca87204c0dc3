"""slurmctld is stopped where so many of its naps are left that it looks when it is to."""

from __future__ import annotations

import pytest

from scripts.impact_bench.looks import NAPS, common_pass, stop_after

LOOK_S = 1000.0


@pytest.mark.parametrize("naps", range(NAPS))
def test_as_many_naps_as_asked_for_follow_the_one_it_is_stopped_in(naps: int) -> None:
    into_s = stop_after(LOOK_S, naps, LOOK_S) - LOOK_S
    assert NAPS - 1 - int(into_s / 0.1) == naps


def test_it_is_stopped_in_the_middle_of_a_nap() -> None:
    assert stop_after(LOOK_S, 9, LOOK_S) - LOOK_S == pytest.approx(0.05, abs=0.001)


def test_where_that_has_passed_it_is_stopped_in_a_later_second() -> None:
    stop_s = stop_after(LOOK_S, 4, LOOK_S + 20.7)
    assert LOOK_S + 20.7 <= stop_s <= LOOK_S + 21.71


@pytest.mark.parametrize(
    ("dues_s", "second"),
    [
        pytest.param((100.0, 104.0), 14.0, id="the first waits for the second"),
        pytest.param((100.0, 129.0), 10.0, id="the second is nearly a whole interval later"),
        pytest.param((110.0, 100.0), 20.0, id="in any order"),
    ],
)
def test_clusters_make_a_pass_together_at_the_moment_that_holds_them_up_least(
    dues_s: tuple[float, ...], second: float
) -> None:
    at_s = common_pass(dues_s, 30.0, now_s=95.0)
    assert at_s % 30.0 == second
    assert at_s >= 95.0 + 30.0
