"""Made-up clusters: their workload, their scheduler, and the holes that it leaves.

The scheduler is first come first served with EASY backfill, held to what defines it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.replay.logs.holes import trace_of_holes
from bftrainer_slurm.replay.synthetic.backfill import Timetable, schedule
from bftrainer_slurm.replay.synthetic.schedule import simulate
from bftrainer_slurm.replay.synthetic.workload import (
    DAY_S,
    LONGEST_RUN_S,
    Jobs,
    Workload,
    WorkloadError,
    draw,
    parse_synthetic,
)
from tests.controller.worlds import cases

NODES = 8
FOREVER = 1e9


def test_the_text_form() -> None:
    found = [parse_synthetic(text) for text in ("1000", "1000:0.9", "64:1.1:42")]
    assert found == [Workload(1000), Workload(1000, 0.9), Workload(64, 1.1, 42)]


NO_CLUSTERS = ["", "x", "10:", "10:1:2:3", "0", "10:0", "10:9", "10:nan", "10:1:-1", "1e3"]


@pytest.mark.parametrize(
    ("text", "days"),
    [*((text, 1.0) for text in NO_CLUSTERS), *(("10", days) for days in (0.0, math.nan, 1e9))],
)
def test_what_is_no_cluster_is_refused(text: str, days: float) -> None:
    with pytest.raises(WorkloadError):
        parse_synthetic(text, days)


def test_the_jobs_ask_for_the_load_and_each_fits_and_asks_for_enough_time() -> None:
    workload = Workload(2000, load=0.8, days=60)
    jobs = draw(workload)
    assert (jobs.nodes * jobs.run_s).sum() / (2000 * workload.span_s) == pytest.approx(0.8, rel=0.1)
    assert (jobs.nodes.min(), draw(Workload(200)).nodes.max()) == (1, 50)
    assert (jobs.limit_s >= jobs.run_s).all()
    assert jobs.limit_s.max() <= LONGEST_RUN_S


def test_days_are_busier_than_nights_and_weekends() -> None:
    jobs = draw(Workload(5000, days=26))
    hour = jobs.submit_s // 3600 % 24
    weekend = jobs.submit_s // DAY_S % 7 >= 5
    by_day = np.count_nonzero((hour >= 11) & (hour < 17))
    by_night = np.count_nonzero((hour >= 23) | (hour < 5))
    assert by_day > 2 * by_night
    assert np.count_nonzero(weekend) / len(weekend) < 2 / 7 * 0.8


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


def at_each_event(jobs: Jobs, found: Timetable) -> Iterator[tuple[float, list[int], list[int]]]:
    """Yield each time of an event, who waits then, and who runs."""
    ends_s = found.start_s + jobs.run_s
    for time_s in np.unique(np.concatenate([jobs.submit_s, found.start_s, ends_s])):
        waits = (jobs.submit_s <= time_s) & (found.start_s > time_s)
        runs = (found.start_s <= time_s) & (time_s < ends_s)
        yield time_s, np.flatnonzero(waits).tolist(), np.flatnonzero(runs).tolist()


@given(workloads())
def test_every_job_runs_once_on_nodes_of_its_own_and_the_first_never_waits_beside_enough(
    jobs: Jobs,
) -> None:
    found = schedule(jobs, NODES, FOREVER)
    assert (found.start_s >= jobs.submit_s).all()
    assert [len(set(held.tolist())) for held in found.held] == jobs.nodes.tolist()
    came_or_ended = {*jobs.submit_s, *(found.start_s + jobs.run_s)}
    for time_s, waiting, running in at_each_event(jobs, found):
        held = [node for job in running for node in found.held[job]]
        assert len(held) == len(set(held))
        if waiting and time_s in came_or_ended:
            assert jobs.nodes[waiting[0]] > NODES - len(held)


def expected(jobs: Jobs, found: Timetable) -> Iterator[tuple[int, float]]:
    """Yield who is the first in the queue at each event, and when the limits let it start."""
    for _, waiting, running in at_each_event(jobs, found):
        free = NODES - sum(int(jobs.nodes[job]) for job in running)
        for job in sorted(running, key=lambda one: found.start_s[one] + jobs.limit_s[one]):
            free += int(jobs.nodes[job])
            if waiting and free >= jobs.nodes[waiting[0]]:
                yield waiting[0], float(found.start_s[job] + jobs.limit_s[job])
                break


@given(workloads(), st.booleans())
def test_nobody_puts_off_the_first_in_the_queue(jobs: Jobs, exact: bool) -> None:
    """Limits that are kept to make the expected start the real one."""
    if exact:
        jobs = Jobs(jobs.submit_s, jobs.nodes, jobs.run_s, jobs.run_s)
    found = schedule(jobs, NODES, FOREVER)
    for job, latest_s in expected(jobs, found):
        assert found.start_s[job] == latest_s if exact else found.start_s[job] <= latest_s


LONG_FIRST = [(0, 6, 100, 100), (1, 8, 50, 50)]  # submit time, nodes, run time and limit of each


@cases(
    "rows, options, starts_s, backfilled",
    before_a_large_one_if_it_is_short=(
        [*LONG_FIRST, (2, 2, 70, 70), (3, 2, 200, 200)],
        *({}, [0, 100, 30, 150], [False, False, True, False]),
    ),
    on_nodes_that_the_first_does_not_need_if_it_is_long=(
        [(0, 4, 100, 100), (1, 6, 50, 50), (2, 2, 500, 500), (3, 1, 500, 500)],
        *({}, [0, 100, 30, 150], [False, False, True, False]),
    ),
    in_passes_as_often_as_they_are_set_to=(
        *([*LONG_FIRST, (2, 2, 50, 50)], {"interval_s": 7}, [0, 100, 7], [False, False, True]),
    ),
    not_after_the_end=(
        *([(0, 8, 60, 60), (10, 4, 50, 50)], {"until_s": 60}, [0, math.nan], [False, False]),
    ),
)
def test_a_job_starts(
    rows: list[tuple[float, ...]],
    options: dict[str, float],
    starts_s: list[float],
    backfilled: list[bool],
) -> None:
    submit_s, nodes, run_s, limit_s = np.array(rows, float).T
    jobs = Jobs(submit_s, nodes.astype(np.int32), run_s, limit_s)
    found = schedule(jobs, NODES, **{"until_s": FOREVER} | options)
    assert found.start_s.tolist() == pytest.approx(starts_s, nan_ok=True)
    assert found.backfilled.tolist() == backfilled


SITE = Workload(100, load=0.9, seed=3, days=3)


def test_busy_and_idle_time_are_all_the_time_and_the_same_workload_gives_the_same() -> None:
    log, again = (simulate(SITE, min_hole_s=0.0) for _ in range(2))
    times_s = log.jobs.start_s, log.jobs.end_s
    start_s, end_s = (np.clip(one, log.from_s, log.to_s) for one in times_s)
    busy_s = np.sum((end_s - start_s) * log.jobs.nodes)
    assert busy_s + log.holes.length_s.sum() == pytest.approx(100 * 3 * 86400)
    assert np.array_equal(again.jobs.start_s, log.jobs.start_s)


def test_the_trace_has_the_holes() -> None:
    log = simulate(SITE, min_hole_s=60.0)
    trace = trace_of_holes(log.holes, log.from_s, log.to_s)
    assert (int(trace.idle.sum()), trace.end_s) == (len(log.holes.node), SITE.to_s)
    assert log.holes.length_s.min() >= 60.0
