"""A made-up cluster's holes are where its schedule has nobody."""

from __future__ import annotations

import numpy as np
import pytest

from bftrainer_slurm.replay.synthetic.schedule import Schedule, simulate
from bftrainer_slurm.replay.synthetic.workload import Workload


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    return simulate(Workload(100, load=0.9, seed=3, days=3))


def test_busy_and_idle_time_are_all_the_time(schedule: Schedule) -> None:
    start_s = np.clip(schedule.start_s, schedule.workload.from_s, schedule.workload.to_s)
    end_s = np.clip(schedule.end_s, schedule.workload.from_s, schedule.workload.to_s)
    busy_s = np.nansum((end_s - start_s) * schedule.jobs.nodes)
    idle_s = schedule.holes(min_hole_s=0.0).length_s.sum()
    assert busy_s + idle_s == pytest.approx(100 * 3 * 86400)


def test_the_trace_has_the_holes(schedule: Schedule) -> None:
    holes, trace = schedule.holes(60.0), schedule.trace(60.0)
    assert int(trace.idle.sum()) == len(holes.node)
    assert trace.end_s == schedule.workload.to_s
    assert holes.length_s.min() >= 60.0


def test_the_same_workload_gives_the_same_schedule(schedule: Schedule) -> None:
    again = simulate(schedule.workload)
    assert np.array_equal(again.start_s, schedule.start_s, equal_nan=True)


def test_ten_thousand_jobs_on_a_thousand_nodes() -> None:
    busy = simulate(Workload(1000, load=0.9, days=37))
    assert len(busy.jobs.nodes) > 10_000
    assert np.isfinite(busy.start_s).mean() > 0.95
