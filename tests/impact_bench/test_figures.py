"""What is said of the two sides is true of them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from scripts.impact_bench.figures import (
    Comparison,
    Shares,
    compared,
    delays,
    failures,
    makespan_s,
    targets,
)
from tests.impact_bench.starts import start


def test_a_jobs_delay_is_from_its_sbatch_to_its_first_line() -> None:
    assert start(submit_s=10.0, delay_s=0.25).delay_s == pytest.approx(0.25)


def test_delays_are_of_the_same_jobs_on_both_sides() -> None:
    off = [start(delay_s=1.0), start(delay_s=2.0), start(delay_s=3.0)]
    on = [start(delay_s=1.5), start(delay_s=None), start(delay_s=3.25)]
    assert delays(off, on) == ([1.0, 3.0], [1.5, 3.25])


def test_the_difference_is_of_each_job_not_of_the_medians() -> None:
    found = compared([1.0, 2.0, 9.0], [3.0, 2.5, 9.1])
    assert found is not None
    assert found.difference.median == pytest.approx(0.5)
    assert found.on.median - found.off.median == pytest.approx(1.0)


def test_a_makespan_ends_with_the_last_job() -> None:
    starts = [start(submit_s=0, delay_s=1, runs_s=20), start(submit_s=10, delay_s=1, runs_s=2)]
    assert makespan_s(starts) == pytest.approx(21)


def test_a_stream_of_which_nothing_ended_has_no_makespan() -> None:
    assert math.isnan(makespan_s([start(delay_s=None)]))


@pytest.mark.parametrize(
    ("job", "failed"),
    [
        (start(), 0),
        (start(state="FAILED"), 1),
        (start(delay_s=None, state="PENDING"), 1),
        (start(restarts=1), 1),
    ],
    ids=["ran well", "failed", "never started", "was requeued"],
)
def test_a_job_fails_that_does_not_run_once_and_well(job, failed) -> None:  # type: ignore[no-untyped-def]
    assert failures([job]) == failed


FINE = Shares(preempted=1.0, missed=1.0, sooner=5.0, makespan=0.2, used=90.0)


def met(comparison: Comparison | None, shares: Shares, *failed: int) -> list[bool]:
    assert comparison is not None
    return [one.met for one in targets(comparison, shares, *failed)]


def test_all_targets_can_be_met() -> None:
    assert met(compared([0.1] * 99 + [0.5], [0.14] * 99 + [2.0]), FINE, 1, 1, 0) == [True] * 9


@pytest.mark.parametrize(
    ("name", "value", "missed"), [("missed", 1.1, 3), ("preempted", 2.1, 4), ("makespan", 0.4, 5)]
)
def test_a_share_that_is_too_large_misses_its_target(name: str, value: float, missed: int) -> None:
    judged = met(compared([0.1], [0.1]), replace(FINE, **{name: value}), 0, 0, 0)
    assert [number for number, one in enumerate(judged) if not one] == [missed]


def test_where_jobs_leave_nothing_idle_nothing_is_asked_of_trainers() -> None:
    assert len(met(compared([0.1], [0.1]), replace(FINE, used=None), 0, 0, 0)) == 8
    assert met(compared([0.1], [0.1]), replace(FINE, used=84.0), 0, 0, 0)[8] is False


def test_jobs_that_failed_on_both_sides_are_not_the_trainers_fault_but_more_are() -> None:
    assert met(compared([0.1], [0.1]), FINE, 1, 2, 3)[6:8] == [False, False]
