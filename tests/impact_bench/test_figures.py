"""What is said of the two sides is true of them."""

from __future__ import annotations

import math

import pytest

from scripts.impact_bench.figures import (
    compared,
    delays,
    failures,
    makespan_s,
    targets,
)
from tests.impact_bench.starts import start


def test_a_jobs_delay_is_from_its_sbatch_to_its_first_line() -> None:
    assert start(submit_s=10.0, delay_s=0.25).delay_s == pytest.approx(0.25)


def test_slurm_accounts_in_whole_seconds() -> None:
    assert start(submit_s=10.9, delay_s=0.2).accounted_s == 1


def test_delays_are_of_the_same_jobs_on_both_sides() -> None:
    off = [[start(delay_s=1.0), start(delay_s=2.0)], [start(delay_s=3.0)]]
    on = [[start(delay_s=1.5), start(delay_s=None)], [start(delay_s=3.25)]]
    assert delays(off, on) == ([1.0, 3.0], [1.5, 3.25])


def test_the_difference_is_of_each_job_not_of_the_medians() -> None:
    found = compared([1.0, 2.0, 9.0], [3.0, 2.5, 9.1])
    assert found is not None
    assert found.difference.median == pytest.approx(0.5)
    assert found.on.median - found.off.median == pytest.approx(1.0)


def test_a_makespan_ends_with_the_last_job() -> None:
    chunk = [start(submit_s=0, delay_s=1, runs_s=20), start(submit_s=10, delay_s=1, runs_s=2)]
    assert makespan_s(chunk) == pytest.approx(21)


def test_a_chunk_in_which_nothing_ended_has_no_makespan() -> None:
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
    assert failures([[job]]) == failed


def test_targets_are_held_against_what_was_found() -> None:
    comparison = compared([0.1] * 99 + [0.5], [0.15] * 99 + [2.0])
    assert comparison is not None
    judged = {one.text: one.met for one in targets(comparison, 1, 1, 3)}
    assert judged == {
        "median of the differences, s": True,
        "difference of the medians, s": True,
        "difference of the p99, s": True,
        "jobs failed that did not without": True,
        "processes of trainers left behind": False,
    }


def test_jobs_that_failed_on_both_sides_are_not_the_trainers_fault_but_more_are() -> None:
    comparison = compared([0.1], [0.1])
    assert comparison is not None
    assert [one.met for one in targets(comparison, 1, 2, 0)][3] is False
