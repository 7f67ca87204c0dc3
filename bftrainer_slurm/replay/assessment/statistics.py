"""Figures about the holes of a log: how many, how long, and when; and how trainers delay jobs.

The delay of ordinary jobs, how much later they start, is a distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.replay.logs.holes import Columns, HoleTable, idle_seconds
from bftrainer_slurm.replay.logs.log import Log
from bftrainer_slurm.replay.playback import Started
from bftrainer_slurm.replay.trace import HOUR_S

_QUARTER_S = 900.0  # every time zone's hours begin at one of these
_LENGTHS_S = (0.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 10800.0, 43200.0, 86400.0, 604800.0)


@dataclass(frozen=True, slots=True)
class LengthClass:
    """The holes of ``from_s`` or more and below ``to_s``: how many, and the idle time in them."""

    from_s: float
    to_s: float
    holes: int
    node_hours: float


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """Figures about the holes of a log, from its first to its last trusted moment."""

    hours: float  # from first to last
    machine_nodes: int
    idle_node_hours: float
    holes: int
    median_hole_s: float  # NaN if there is none
    mean_hole_s: float
    lengths: tuple[LengthClass, ...]
    by_hour: NDArray[np.float64]  # [7, 24] mean idle nodes, Monday first; NaN: not in the log

    @property
    def idle_share(self) -> float:
        """Idle node time over that of the whole machine."""
        return self.idle_node_hours / (self.hours * self.machine_nodes)

    @property
    def mean_idle_nodes(self) -> float:
        """How many nodes were idle on average."""
        return self.idle_node_hours / self.hours


def describe(log: Log, zone: tzinfo) -> Statistics:
    """Return the figures of a log; hours of the day are those of ``zone``."""
    holes = log.holes
    length_s = holes.length_s
    some = len(length_s) > 0
    return Statistics(
        hours=(log.to_s - log.from_s) / HOUR_S,
        machine_nodes=log.nodes,
        idle_node_hours=float(length_s.sum()) / HOUR_S,
        holes=len(length_s),
        median_hole_s=float(np.median(length_s)) if some else math.nan,
        mean_hole_s=float(length_s.mean()) if some else math.nan,
        lengths=_lengths(length_s),
        by_hour=_by_hour(holes, log.from_s, log.to_s, zone),
    )


def _lengths(length_s: NDArray[np.float64]) -> tuple[LengthClass, ...]:
    edges_s = [*_LENGTHS_S, math.inf]
    holes, _ = np.histogram(length_s, edges_s)
    idle_s, _ = np.histogram(length_s, edges_s, weights=length_s)
    return tuple(
        LengthClass(from_s, to_s, int(count), float(seconds) / HOUR_S)
        for from_s, to_s, count, seconds in zip(edges_s, edges_s[1:], holes, idle_s, strict=False)
    )


def _by_hour(holes: HoleTable, from_s: float, to_s: float, zone: tzinfo) -> NDArray[np.float64]:
    first_s = math.floor(from_s / _QUARTER_S) * _QUARTER_S
    count = math.ceil((to_s - first_s) / _QUARTER_S)
    begins_s = first_s + _QUARTER_S * np.arange(count)
    seen_s = np.minimum(begins_s + _QUARTER_S, to_s) - np.maximum(begins_s, from_s)
    idle_s = idle_seconds(holes, Columns(first_s, _QUARTER_S, count))[0]
    local = [datetime.fromtimestamp(begin_s, zone) for begin_s in begins_s]
    hour = np.array([time.weekday() * 24 + time.hour for time in local])
    with np.errstate(invalid="ignore"):  # 0 of 0 seconds: this hour is not in the log
        mean = np.bincount(hour, idle_s, 168) / np.bincount(hour, seen_s, 168)
    return mean.reshape(7, 24)


AT_ONCE_S = 0.01  # a job that starts by less later has started as soon as without trainers
DELAYS_S = (0.0, AT_ONCE_S, 1.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True, slots=True)
class JobDelays:
    """For so many jobs: added start delay in seconds, and how many missed a pass or preempted.

    ``later`` started later at all; ``delays`` counts jobs by the classes that ``DELAYS_S`` begin.
    """

    jobs: int
    later: int
    delays: tuple[int, ...]
    median_s: float
    p95_s: float
    p99_s: float
    mean_s: float
    most_s: float
    missed: int
    preempted: int


def job_delays(started: Sequence[Started] | None) -> JobDelays | None:
    """Return the distribution; None if no job started, or nothing is known."""
    if not started:
        return None
    late_s = np.array([one.late_s for one in started])
    median_s, p95_s, p99_s = np.quantile(late_s, (0.5, 0.95, 0.99)).tolist()
    return JobDelays(
        jobs=len(started),
        later=int((late_s >= AT_ONCE_S).sum()),
        delays=tuple(np.histogram(late_s.clip(0.0), (*DELAYS_S, np.inf))[0].tolist()),
        median_s=median_s,
        p95_s=p95_s,
        p99_s=p99_s,
        mean_s=float(late_s.mean()),
        most_s=float(late_s.max()),
        missed=sum(one.missed > 0 for one in started),
        preempted=sum(one.preempted for one in started),
    )
