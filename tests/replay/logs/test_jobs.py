"""A log's jobs as columns."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.replay.logs.jobs import Job, JobTable

RUNS = Job(
    1, 7, 100.0, math.inf, 3, "n[1-3]", 50.0, backfilled=True, partition="gpu", limit_s=600.0
)
jobs = st.lists(st.builds(RUNS._replace, key=st.integers(0, 3), end_s=st.floats(100, 999)))


@given(jobs)
def test_a_table_has_the_jobs_that_it_is_made_of(rows: list[Job]) -> None:
    assert list(JobTable.of(rows)) == rows
    assert list(JobTable.joined([JobTable.of([one]) for one in rows])) == rows


def test_what_the_log_shows_twice_counts_once() -> None:
    assert list(JobTable.of([RUNS, RUNS._replace(line=9)]).once()) == [RUNS]


def test_of_a_job_that_still_ran_in_one_part_of_the_log_the_end_counts() -> None:
    ended = RUNS._replace(line=9, end_s=200.0)
    assert list(JobTable.of([RUNS, ended]).once()) == [ended]
    assert list(JobTable.of([ended, RUNS]).once()) == [ended]


@given(jobs)
def test_of_each_key_one_is_left_in_the_order_of_the_log(rows: list[Job]) -> None:
    left = [one.key for one in JobTable.of(rows).once()]
    assert sorted(left) == sorted({one.key for one in rows})
