"""First come first served with EASY backfill, held to what defines it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.replay.synthetic.backfill import Timetable, schedule
from bftrainer_slurm.replay.synthetic.workload import Jobs

NODES = 8
FOREVER = 1e9


@st.composite
def workloads(draw: st.DrawFn) -> Jobs:
    """Up to 25 jobs of 1 to 8 nodes, many of which arrive at once."""
    count = draw(st.integers(1, 25))

    def numbers(least: int, most: int) -> list[int]:
        return draw(st.lists(st.integers(least, most), min_size=count, max_size=count))

    run_s = np.array(numbers(1, 30), float)
    return Jobs(
        submit_s=np.array(sorted(numbers(0, 40)), float),
        nodes=np.array(numbers(1, NODES), np.int32),
        run_s=run_s,
        limit_s=run_s * np.array(numbers(1, 4)),
    )


def jobs_of(*rows: tuple[float, int, float, float]) -> Jobs:
    """Rows of submit time, nodes, run time and limit."""
    submit_s, nodes, run_s, limit_s = (
        np.array(column, float) for column in zip(*rows, strict=True)
    )
    return Jobs(submit_s, nodes.astype(np.int32), run_s, limit_s)


def running_at(jobs: Jobs, found: Timetable, time_s: float) -> list[int]:
    end_s = found.start_s + jobs.run_s
    return np.flatnonzero((found.start_s <= time_s) & (time_s < end_s)).tolist()


@given(workloads())
def test_every_job_runs_once_on_as_many_nodes_as_it_asked_for(jobs: Jobs) -> None:
    found = schedule(jobs, NODES, FOREVER)
    assert (found.start_s >= jobs.submit_s).all()
    assert [len(set(held.tolist())) for held in found.held] == jobs.nodes.tolist()


@given(workloads())
def test_no_node_has_two_jobs(jobs: Jobs) -> None:
    found = schedule(jobs, NODES, FOREVER)
    for time_s in found.start_s:
        held = [node for job in running_at(jobs, found, time_s) for node in found.held[job]]
        assert len(held) == len(set(held))


@given(workloads())
def test_the_first_in_the_queue_never_waits_beside_enough_idle_nodes(jobs: Jobs) -> None:
    found = schedule(jobs, NODES, FOREVER)
    for time_s in np.unique(np.concatenate([jobs.submit_s, found.start_s + jobs.run_s])):
        waiting = np.flatnonzero((jobs.submit_s <= time_s) & (found.start_s > time_s))
        busy = sum(int(jobs.nodes[job]) for job in running_at(jobs, found, time_s))
        if len(waiting):
            assert jobs.nodes[waiting[0]] > NODES - busy


def expected(jobs: Jobs, found: Timetable) -> Iterator[tuple[int, float]]:
    """Yield who is the first in the queue at each event, and when the limits let it start."""
    for time_s in np.unique(np.concatenate([jobs.submit_s, found.start_s + jobs.run_s])):
        waiting = np.flatnonzero((jobs.submit_s <= time_s) & (found.start_s > time_s))
        running = running_at(jobs, found, time_s)
        free = NODES - sum(int(jobs.nodes[job]) for job in running)
        for job in sorted(running, key=lambda one: found.start_s[one] + jobs.limit_s[one]):
            free += int(jobs.nodes[job])
            if len(waiting) and free >= jobs.nodes[waiting[0]]:
                yield int(waiting[0]), float(found.start_s[job] + jobs.limit_s[job])
                break


@given(workloads())
def test_nobody_puts_off_the_first_in_the_queue(jobs: Jobs) -> None:
    found = schedule(jobs, NODES, FOREVER)
    for job, latest_s in expected(jobs, found):
        assert found.start_s[job] <= latest_s


@given(workloads())
def test_limits_that_are_kept_to_make_the_expected_start_the_real_one(jobs: Jobs) -> None:
    exact = Jobs(jobs.submit_s, jobs.nodes, jobs.run_s, jobs.run_s)
    found = schedule(exact, NODES, FOREVER)
    for job, latest_s in expected(exact, found):
        assert found.start_s[job] == latest_s


def test_a_short_job_fills_the_hole_before_a_large_one_in_the_next_pass() -> None:
    jobs = jobs_of((0, 6, 100, 100), (1, 8, 50, 50), (2, 2, 70, 70), (3, 2, 200, 200))
    found = schedule(jobs, NODES, FOREVER)
    assert found.start_s.tolist() == [0, 100, 30, 150]
    assert found.backfilled.tolist() == [False, False, True, False]


def test_a_long_job_may_start_on_nodes_that_the_first_does_not_need() -> None:
    jobs = jobs_of((0, 4, 100, 100), (1, 6, 50, 50), (2, 2, 500, 500), (3, 1, 500, 500))
    found = schedule(jobs, NODES, FOREVER)
    assert found.start_s.tolist() == [0, 100, 30, 150]


def test_passes_come_as_often_as_they_are_set_to() -> None:
    jobs = jobs_of((0, 6, 100, 100), (1, 8, 50, 50), (2, 2, 50, 50))
    assert schedule(jobs, NODES, FOREVER, interval_s=7).start_s[2] == 7


def test_nothing_starts_after_the_end() -> None:
    found = schedule(jobs_of((0, 8, 60, 60), (10, 4, 50, 50)), NODES, until_s=60)
    assert found.start_s[0] == 0
    assert math.isnan(found.start_s[1])
