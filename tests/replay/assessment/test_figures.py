"""Figures of logs that can be counted by hand: holes, why nodes are idle, and what is replayed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from bftrainer_slurm.replay.assessment.harvest import samples_of
from bftrainer_slurm.replay.assessment.reasons import Reasons, reasons_of
from bftrainer_slurm.replay.assessment.statistics import describe
from bftrainer_slurm.replay.assessment.words import WEEKDAYS
from bftrainer_slurm.replay.logs.jobs import Job, JobTable
from bftrainer_slurm.replay.logs.log import Log
from bftrainer_slurm.replay.trainers import typical_trainers
from tests.controller.worlds import cases
from tests.replay.traces import hole_table

MONDAY = 1_704_067_200.0  # 1 January 2024, 00:00 UTC
HOUR = 3600.0
Hole = tuple[int, float, float]  # its node, begin and end in hours from Monday on


def log(holes: Iterable[Hole], hours: float, nodes: int = 10, **known: Any) -> Log:
    """A log from Monday on."""
    rows = ((node, MONDAY + HOUR * begin, MONDAY + HOUR * end) for node, begin, end in holes)
    table = hole_table(rows, *(f"n{k}" for k in range(nodes)))
    return Log("log", table, nodes, MONDAY, MONDAY + HOUR * hours, **known)


@cases(
    "holes, hours, known",
    are_idle_time_over_the_machine=(
        *([(0, 0, 10), (1, 5, 10)], 10),
        {"idle_node_hours": 15, "idle_share": 0.15, "mean_idle_nodes": 1.5},
    ),
    are_how_many_and_how_long=(
        *([(0, 0, 1), (1, 0, 2), (2, 0, 30)], 30, {"holes": 3, "median_hole_s": 7200}),
    ),
    may_be_none=([], 10, {"idle_node_hours": 0, "holes": 0, "median_hole_s": math.nan}),
)
def test_holes(holes: list[Hole], hours: float, known: dict[str, float]) -> None:
    figures = describe(log(holes, hours), UTC)
    assert {name: getattr(figures, name) for name in known} == pytest.approx(known, nan_ok=True)


def test_length_classes_hold_every_hole() -> None:
    figures = describe(log([(k, 0, 10.0 ** (k - 5)) for k in range(9)], hours=2000), UTC)
    assert sum(one.holes for one in figures.lengths) == 9
    hours = sum(one.node_hours for one in figures.lengths)
    assert hours == pytest.approx(figures.idle_node_hours)


@cases(
    "holes, hours, zone, known, idle",
    of_two_weeks=([(0, 0, 1.5), (1, 0, 1.5)], 14 * 24, UTC, 7 * 24, {(0, 0): 1.0, (0, 1): 0.5}),
    of_the_zone=(  # 05:30 to 06:30
        *([(0, 0, 1)], 7 * 24, ZoneInfo("Asia/Kolkata"), 7 * 24, {(0, 5): 0.5, (0, 6): 0.5}),
    ),
    that_the_log_does_not_reach_are_unknown=([(0, 0, 1)], 2, UTC, 2, {(0, 0): 1.0}),
)
def test_hours_of_the_week(
    holes: list[Hole], hours: float, zone: tzinfo, known: int, idle: dict[tuple[int, int], float]
) -> None:
    by_hour = describe(log(holes, hours), zone).by_hour
    assert np.isfinite(by_hour).sum() == known
    found = {(int(day), int(hour)): by_hour[day, hour] for day, hour in np.argwhere(by_hour > 0)}
    assert found == pytest.approx(idle)


# Why nodes are idle, by who waited meanwhile.


def waiting(nodes: int, from_h: float, to_h: float, partition: str = "p") -> Job:
    """A job that waits from then to then, and never starts."""
    end_s = MONDAY + HOUR * to_h
    key = hash((nodes, from_h, to_h))
    return Job(0, key, math.inf, end_s, nodes, "", MONDAY + HOUR * from_h, None, 0, partition)


def why(holes: Iterable[Hole], *jobs: Job, kinds: str = "pppp", **known: object) -> Reasons:
    known |= {"jobs": JobTable.of(jobs), "kinds": tuple(frozenset(kind) for kind in kinds)}
    found = reasons_of(log(holes, 48, len(kinds), **known), UTC, WEEKDAYS)
    assert found is not None
    return found


TWO_IDLE: list[Hole] = [(0, 0, 24), (1, 0, 24)]
FIRST_AND_LAST: list[Hole] = [(0, 0, 24), (3, 0, 24)]


@cases(
    "found, hours",
    nothing_waits=(why(TWO_IDLE, waiting(1, 30, 40)), {"empty": 48}),
    a_job_waits_whatever_it_lacks=(
        *(why(TWO_IDLE, waiting(1, 6, 12), waiting(9, 12, 24)), {"empty": 12, "waited": 36}),
    ),
    one_that_asks_for_several_partitions_waits_in_each=(
        *(why(FIRST_AND_LAST, waiting(1, 0, 24, "p,q"), kinds="pppq"), {"waited": 48}),
    ),
    nodes_that_were_reserved_or_down_are_told_apart=(
        why([(0, 0, 24)], waiting(1, 30, 40), unusable=log([(2, 0, 5)], 48, 4).holes),
        {"empty": 24, "down": 5},
    ),
)
def test_reasons(found: Reasons, hours: dict[str, float]) -> None:
    some = {reason: of for reason, of in found.total.node_hours.items() if of}
    assert some == pytest.approx(hours, abs=0.2)
    assert {one.name.lower() for one in found.seen} >= hours.keys()


def test_reasons_are_told_apart_by_partition_type_and_weekday() -> None:
    found = why(FIRST_AND_LAST, waiting(1, 0, 24, "q"), kinds="pppq")
    cpu, gpu = found.by_partition
    assert (cpu.what, cpu.node_hours["empty"]) == ("p", pytest.approx(24))
    assert (gpu.what, gpu.node_hours["waited"]) == ("q", pytest.approx(24))
    types = ("cpu", "cpu", "gpu", "gpu")
    cpu, gpu = why([(0, 0, 24), (2, 12, 24)], waiting(1, 0, 48), types=types).by_type
    assert (cpu.what, gpu.what) == ("cpu", "gpu")
    assert gpu.node_hours["waited"] == pytest.approx(12, abs=0.2)
    monday, tuesday, *others = why([(0, 0, 48)], waiting(9, 24, 48)).by_weekday
    assert monday.node_hours["empty"] == pytest.approx(24, abs=0.2)
    assert tuesday.node_hours["waited"] == pytest.approx(24, abs=0.2)
    assert not any(sum(one.node_hours.values()) for one in others)


def test_a_log_without_jobs_tells_no_reason() -> None:
    assert reasons_of(log(TWO_IDLE, hours=48), UTC, WEEKDAYS) is None


# Which parts of a log are replayed, and with what.

IDLE = (5, 1, 3, 9, 7, 8, 2, 10, 6, 4)  # hours in each part of twelve
PARTS: list[Hole] = [(k, 12 * k, 12 * k + hours) for k, hours in enumerate(IDLE)]
BUSY: list[Hole] = [(0, k / 60, k / 60 + 0.01) for k in range(60 * 24)]


@cases(
    "holes, hours, options, parts",
    a_short_log_whole=([(0, 1, 2), (1, 1, 4)], 8, {}, [(0, 8, 4)]),
    of_a_long_log_those_that_stand_for_all_of_it=(
        *(PARTS, 120, {}, [(12 * k, 12, IDLE[k]) for k in (5, 6, 7, 8, 9)]),
    ),
    none_without_a_hole=([(0, 25, 26)], 48, {}, [(24, 12, 1)]),
    as_long_ones_as_are_wanted=(
        *([(0, 0, 30)], 30, {"hours": 10}, [(0, 10, 10), (10, 10, 10), (20, 10, 10)]),
    ),
    shorter_ones_where_much_happens=(
        *(BUSY, 24, {}, [(at, 6, pytest.approx(3.6)) for at in (0, 6, 12, 18)]),
    ),
)
def test_replayed_are(holes: list[Hole], hours: float, options: Any, parts: list[Any]) -> None:
    samples = samples_of(log(holes, hours), **options)
    found = [((one.from_s - MONDAY) / HOUR, one.hours, one.idle_hours) for one in samples]
    assert found == parts
    assert all(one.trace.start_s == one.from_s for one in samples)  # before its first hole
    assert all(one.play is None for one in samples)  # a list of holes tells nothing of jobs


def test_typical_trainers_scale_as_they_are_described() -> None:
    (trainer,) = typical_trainers(1)
    assert round(trainer.curve.at(64) / trainer.curve.at(1)) == 39
    assert (trainer.min_nodes, trainer.max_nodes) == (1, 64)
    assert trainer.rescale_up_s == pytest.approx(0.2)
