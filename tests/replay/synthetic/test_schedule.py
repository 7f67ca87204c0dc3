"""A made-up cluster's holes are where its schedule has nobody."""

from __future__ import annotations

import numpy as np
import pytest

from bftrainer_slurm.replay.logs.holes import trace_of_holes
from bftrainer_slurm.replay.logs.jobs import JobTable
from bftrainer_slurm.replay.logs.log import Log
from bftrainer_slurm.replay.synthetic.schedule import simulate
from bftrainer_slurm.replay.synthetic.workload import Workload

WORKLOAD = Workload(100, load=0.9, seed=3, days=3)


def jobs_of(log: Log) -> JobTable:
    assert log.jobs is not None
    return log.jobs


@pytest.fixture(scope="module")
def log() -> Log:
    return simulate(WORKLOAD, min_hole_s=0.0)


def test_busy_and_idle_time_are_all_the_time(log: Log) -> None:
    jobs = jobs_of(log)
    start_s, end_s = (np.clip(one, log.from_s, log.to_s) for one in (jobs.start_s, jobs.end_s))
    busy_s = np.sum((end_s - start_s) * jobs.nodes)
    assert busy_s + log.holes.length_s.sum() == pytest.approx(100 * 3 * 86400)


def test_the_trace_has_the_holes() -> None:
    log = simulate(WORKLOAD, min_hole_s=60.0)
    trace = trace_of_holes(log.holes, log.from_s, log.to_s)
    assert int(trace.idle.sum()) == len(log.holes.node)
    assert trace.end_s == WORKLOAD.to_s
    assert log.holes.length_s.min() >= 60.0


def test_the_same_workload_gives_the_same_schedule(log: Log) -> None:
    again = simulate(WORKLOAD, min_hole_s=0.0)
    assert np.array_equal(jobs_of(again).start_s, jobs_of(log).start_s)


def test_ten_thousand_jobs_on_a_thousand_nodes() -> None:
    busy = jobs_of(simulate(Workload(1000, load=0.9, days=37)))
    assert len(busy) > 10_000
    assert busy.started.mean() > 0.95
