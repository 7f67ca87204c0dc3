"""Why nodes are idle, by who waited meanwhile."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC

import pytest

from bftrainer_slurm.replay.assessment.reasons import Reasons, reasons_of
from bftrainer_slurm.replay.assessment.words import WEEKDAYS
from bftrainer_slurm.replay.logs.jobs import Job, JobTable
from tests.replay.assessment.logs import HOUR, MONDAY, log


def waiting(nodes: int, from_h: float, to_h: float, partition: str = "p") -> Job:
    """A job that waits from then to then, and never starts."""
    end_s = MONDAY + HOUR * to_h
    key = hash((nodes, from_h, to_h))
    return Job(0, key, math.inf, end_s, nodes, 0, "", MONDAY + HOUR * from_h, None, 0, partition)


def why(holes: Iterable[tuple[int, float, float]], *jobs: Job, kinds: str = "pppp") -> Reasons:
    table = JobTable()
    for job in jobs:
        table.add(job)
    plain = log(holes, hours=48, nodes=len(kinds))
    found = reasons_of(
        replace(plain, jobs=table, kinds=tuple(frozenset(kind) for kind in kinds)), UTC, WEEKDAYS
    )
    assert found is not None
    return found


TWO_IDLE = [(0, 0, 24), (1, 0, 24)]


def test_nothing_waits() -> None:
    hours = why(TWO_IDLE, waiting(1, 30, 40)).total.node_hours
    assert hours == pytest.approx({"empty": 48, "larger": 0, "other": 0})


def test_they_are_kept_for_a_larger_job() -> None:
    hours = why(TWO_IDLE, waiting(3, 6, 24)).total.node_hours
    assert hours == pytest.approx({"empty": 12, "larger": 36, "other": 0}, abs=0.2)


def test_a_job_that_would_fit_needs_something_else() -> None:
    hours = why(TWO_IDLE, waiting(3, 0, 24), waiting(2, 12, 24)).total.node_hours
    assert hours == pytest.approx({"empty": 0, "larger": 24, "other": 24}, abs=0.2)


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
