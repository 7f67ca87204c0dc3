"""A log is trusted where nearly all jobs of the time are in it."""

from __future__ import annotations

import math

import pytest

from bftrainer_slurm.replay.logs.edges import trusted
from bftrainer_slurm.replay.logs.jobs import Job, JobTable


def table(start_s: list[float], end_s: list[float]) -> JobTable:
    pairs = zip(start_s, end_s, strict=True)
    return JobTable.of(Job(0, key, *pair, 1, "") for key, pair in enumerate(pairs))


def stream(jobs: int = 1000, run_s: float = 100.0) -> tuple[list[float], list[float]]:
    start_s = [10.0 * k for k in range(jobs)]
    return start_s, [start + run_s for start in start_s]


def test_the_first_jobs_must_have_gone_before_a_log_is_trusted() -> None:
    from_s, _ = trusted(table(*stream()), math.nan)
    # All run 100 s: 99 % of what ran when the first one ended has gone 90 s later.
    assert 180 <= from_s <= 200


def test_a_log_ends_with_its_last_submission() -> None:
    _, to_s = trusted(table(*stream()), 9000.0)
    assert to_s == 9000.0


def test_without_submissions_it_ends_with_the_last_start() -> None:
    _, to_s = trusted(table(*stream()), -math.inf)
    assert to_s == 9990.0


def test_a_log_of_ended_jobs_is_cut_at_its_end_too() -> None:
    start_s, end_s = stream()
    done = [(s, e) for s, e in zip(start_s, end_s, strict=True) if e <= 9000.0]
    _, to_s = trusted(table([s for s, _ in done], [e for _, e in done]), 9005.0)
    assert 8900 <= to_s <= 8920


def test_at_most_a_quarter_is_cut_off() -> None:
    from_s, _ = trusted(table([0.0, 0.0, 50.0], [10.0, 1e6, 60.0]), 110.0)
    assert from_s == 10.0 + 25.0


def test_a_log_that_ends_with_its_first_job_leaves_nothing() -> None:
    with pytest.raises(ValueError, match="no job came after its first one had ended"):
        trusted(table([0.0], [10.0]), -math.inf)
