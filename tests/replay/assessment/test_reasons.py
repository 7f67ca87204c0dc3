"""Why nodes are idle, by who waited meanwhile."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC

import numpy as np
import pytest

from bftrainer_slurm.replay.assessment.reasons import Reasons, reasons_of
from bftrainer_slurm.replay.assessment.words import WEEKDAYS
from bftrainer_slurm.replay.logs.hardware import Hardware
from bftrainer_slurm.replay.logs.jobs import Job, JobTable
from tests.replay.assessment.logs import HOUR, MONDAY, log


def waiting(nodes: int, from_h: float, to_h: float, partition: str = "p", **asks: float) -> Job:
    """A job that waits from then to then, and never starts."""
    end_s = MONDAY + HOUR * to_h
    key = hash((nodes, from_h, to_h))
    job = Job(0, key, math.inf, end_s, nodes, 0, "", MONDAY + HOUR * from_h, None, 0, partition)
    return job._replace(**asks)


def why(
    holes: Iterable[tuple[int, float, float]], *jobs: Job, kinds: str = "pppp", **known: object
) -> Reasons:
    plain = log(holes, hours=48, nodes=len(kinds))
    found = reasons_of(
        replace(
            plain, jobs=JobTable.of(jobs), kinds=tuple(frozenset(kind) for kind in kinds), **known
        ),
        UTC,
        WEEKDAYS,
    )
    assert found is not None
    return found


def some(found: Reasons) -> dict[str, float]:
    """The hours of the reasons that there are."""
    return {why: hours for why, hours in found.total.node_hours.items() if hours}


TWO_IDLE = [(0, 0, 24), (1, 0, 24)]


def test_nothing_waits() -> None:
    assert some(why(TWO_IDLE, waiting(1, 30, 40))) == pytest.approx({"empty": 48})


def test_they_are_kept_for_a_larger_job() -> None:
    hours = some(why(TWO_IDLE, waiting(3, 6, 24)))
    assert hours == pytest.approx({"empty": 12, "larger": 36}, abs=0.2)


def test_a_job_that_would_fit_needs_something_else() -> None:
    hours = some(why(TWO_IDLE, waiting(3, 0, 24), waiting(2, 12, 24)))
    assert hours == pytest.approx({"larger": 24, "other": 24}, abs=0.2)


HARDWARE = Hardware(np.array([0, 0, 4, 4]), np.array([64e3, 64e3, 256e3, 256e3], np.float32))


def test_a_job_needs_gpus_that_idle_nodes_lack() -> None:
    asks = waiting(1, 0, 12, gpus=1), waiting(1, 12, 24, gpus=1)
    holes = [(0, 0, 24), (2, 12, 24)]
    found = why(holes, *asks, hardware=HARDWARE, types=("cpu", "cpu", "gpu", "gpu"))
    assert some(found) == pytest.approx({"gpus": 12, "other": 24}, abs=0.2)
    cpu, gpu = found.by_type
    assert (cpu.what, gpu.what) == ("cpu", "gpu")
    assert gpu.node_hours["other"] == pytest.approx(12, abs=0.2)


def test_a_job_needs_memory_that_idle_nodes_lack() -> None:
    types = ("cpu", "cpu", "fat", "fat")
    fat, thin = waiting(2, 0, 24, memory_mb=2 * 200e3), waiting(2, 24, 48, memory_mb=2 * 60e3)
    holes = [(0, 0, 48), (1, 0, 48)]
    found = why(holes, fat, thin, hardware=HARDWARE, types=types)
    assert some(found) == pytest.approx({"memory": 48, "other": 48}, abs=0.2)


def test_nodes_of_which_nothing_is_known_lack_nothing() -> None:
    found = why(TWO_IDLE, waiting(1, 0, 24, gpus=8, memory_mb=1e6))
    assert some(found) == pytest.approx({"other": 48})


def test_a_job_would_run_into_a_larger_one_ahead_of_it() -> None:
    ahead = waiting(4, 0, 48, priority=9)._replace(start_s=MONDAY + HOUR * 24, end_s=MONDAY * 2)
    long = waiting(1, 0, 12, priority=5, limit_s=HOUR * 30)
    short = waiting(1, 12, 18, priority=5, limit_s=HOUR)
    found = why(TWO_IDLE, ahead, long, short)
    assert some(found) == pytest.approx({"time": 24, "other": 12, "larger": 12}, abs=0.2)


def test_one_that_goes_first_does_not_wait_for_the_larger_one_to_start() -> None:
    larger = waiting(4, 0, 48, priority=5)._replace(start_s=MONDAY + HOUR * 24, end_s=MONDAY * 2)
    first = waiting(1, 0, 24, priority=9, limit_s=HOUR * 30)
    assert some(why(TWO_IDLE, larger, first)) == pytest.approx({"other": 48}, abs=0.2)


def test_nodes_that_were_reserved_or_down_are_told_apart() -> None:
    reserved = log([(2, 0, 5)], hours=48, nodes=4).holes
    found = why([(0, 0, 24)], waiting(1, 30, 40), unusable={"reserved": reserved})
    assert some(found) == pytest.approx({"empty": 24, "reserved": 5})
    assert [one.name for one in found.seen] == ["EMPTY", "RESERVED"]


def test_a_job_of_another_partition_is_no_reason() -> None:
    found = why([(0, 0, 24), (3, 0, 24)], waiting(1, 0, 24, "q"), kinds="pppq")
    cpu, gpu = found.by_partition
    assert (cpu.what, cpu.node_hours["empty"]) == ("p", pytest.approx(24))
    assert (gpu.what, gpu.node_hours["other"]) == ("q", pytest.approx(24))


def test_a_job_that_asks_for_several_partitions_waits_in_each() -> None:
    found = why([(0, 0, 24), (3, 0, 24)], waiting(1, 0, 24, "p,q"), kinds="pppq")
    assert found.total.node_hours["other"] == pytest.approx(48)


def test_each_weekday_has_its_own() -> None:
    found = why([(0, 0, 48)], waiting(9, 24, 48))
    monday, tuesday, *others = found.by_weekday
    assert monday.node_hours["empty"] == pytest.approx(24, abs=0.2)
    assert tuesday.node_hours["larger"] == pytest.approx(24, abs=0.2)
    assert not any(sum(one.node_hours.values()) for one in others)


def test_a_log_without_jobs_does_not_tell() -> None:
    assert reasons_of(log(TWO_IDLE, hours=48), UTC, WEEKDAYS) is None
