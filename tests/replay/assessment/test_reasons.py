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
    return Job(0, key, math.inf, end_s, nodes, "", MONDAY + HOUR * from_h, None, 0, partition)


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


def test_a_job_waits_whatever_it_lacks() -> None:
    hours = some(why(TWO_IDLE, waiting(1, 6, 12), waiting(9, 12, 24)))
    assert hours == pytest.approx({"empty": 12, "waited": 36}, abs=0.2)


def test_types_are_told_apart() -> None:
    holes = [(0, 0, 24), (2, 12, 24)]
    found = why(holes, waiting(1, 0, 48), types=("cpu", "cpu", "gpu", "gpu"))
    cpu, gpu = found.by_type
    assert (cpu.what, gpu.what) == ("cpu", "gpu")
    assert gpu.node_hours["waited"] == pytest.approx(12, abs=0.2)


def test_nodes_that_were_reserved_or_down_are_told_apart() -> None:
    down = log([(2, 0, 5)], hours=48, nodes=4).holes
    found = why([(0, 0, 24)], waiting(1, 30, 40), unusable=down)
    assert some(found) == pytest.approx({"empty": 24, "down": 5})
    assert [one.name for one in found.seen] == ["EMPTY", "DOWN"]


def test_a_job_of_another_partition_is_no_reason() -> None:
    found = why([(0, 0, 24), (3, 0, 24)], waiting(1, 0, 24, "q"), kinds="pppq")
    cpu, gpu = found.by_partition
    assert (cpu.what, cpu.node_hours["empty"]) == ("p", pytest.approx(24))
    assert (gpu.what, gpu.node_hours["waited"]) == ("q", pytest.approx(24))


def test_a_job_that_asks_for_several_partitions_waits_in_each() -> None:
    found = why([(0, 0, 24), (3, 0, 24)], waiting(1, 0, 24, "p,q"), kinds="pppq")
    assert found.total.node_hours["waited"] == pytest.approx(48)


def test_each_weekday_has_its_own() -> None:
    found = why([(0, 0, 48)], waiting(9, 24, 48))
    monday, tuesday, *others = found.by_weekday
    assert monday.node_hours["empty"] == pytest.approx(24, abs=0.2)
    assert tuesday.node_hours["waited"] == pytest.approx(24, abs=0.2)
    assert not any(sum(one.node_hours.values()) for one in others)


def test_a_log_without_jobs_does_not_tell() -> None:
    assert reasons_of(log(TWO_IDLE, hours=48), UTC, WEEKDAYS) is None
