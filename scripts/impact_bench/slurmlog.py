"""What slurmctld's log says of each job, and when its schedulers looked. Pure.

The lines are those of Slurm 22.05 at debug2. If another version writes them differently, fewer
jobs are found.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

# What slurmctld's two schedulers write when they begin.
MAIN = "sched: Running job scheduler"
BACKFILL = "sched/backfill: _attempt_backfill: beginning"
_LINE = re.compile(r"\[(\d{4}-\d\d-\d\dT[\d:.]+)\] (.*)")
_JOB = r"JobId=(?:\d+_\d+\()?(?P<{}>\d+)\)?"  # 13, or 5_1(13) of an array
_KEY = _JOB.format("key")
_WITH_ARRAY = _KEY.replace(r"(?:\d+", r"(?:(?P<other>\d+)", 1)
# Each kind of line has the job that it is kept by. ``other`` is its array, another job, or a node.
_KINDS = {
    "submitted": re.compile(rf"_slurm_rpc_submit_batch_job: {_KEY} "),
    "allocated": re.compile(rf"(?:sched: Allocate|_start_job: Started) {_WITH_ARRAY} "),
    "backfilled": re.compile(rf"_start_job: Started {_KEY} "),
    "preempted": re.compile(
        rf"preempted {_JOB.format('other')} has been requeued to reclaim resources for {_KEY}\b"
    ),
    "known": re.compile(rf"_slurm_rpc_epilog_complete: {_KEY} Node=(?P<other>\S+)"),
}
# Of each kind and job, in order: Unix seconds, and the array, the other job, or the node.
Log: TypeAlias = Mapping[tuple[str, int], Sequence[tuple[float, str]]]


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when an element had a node; Unix seconds, inf if it had not ended."""

    array: str
    from_s: float
    until_s: float


def read_log(lines: Iterable[str]) -> Log:
    """Read the log; lines that are not needed are skipped."""
    log: dict[tuple[str, int], list[tuple[float, str]]] = defaultdict(list)
    for time_s, text in _timed(lines):
        for kind, pattern in _KINDS.items():
            if found := pattern.search(text):
                other = found.groupdict().get("other") or ""
                log[kind, int(found["key"])].append((time_s, other))
    return dict(log)


def elements(log: Log, ordinary: Set[int]) -> Iterator[Span]:
    """Yield when elements had nodes: all jobs but the ``ordinary`` ones."""
    for (kind, job), times in log.items():
        if kind != "allocated" or job in ordinary:
            continue
        for at_s, array in times:
            ends_s = (end_s for end_s, _ in log.get(("known", job), ()) if end_s >= at_s)
            yield Span(array, at_s, next(ends_s, math.inf))


def read_looks(lines: Iterable[str], scheduler: str) -> list[float]:
    """Return when ``MAIN`` or ``BACKFILL`` looked for jobs to start."""
    return [time_s for time_s, text in _timed(lines) if scheduler in text]


def _timed(lines: Iterable[str]) -> Iterator[tuple[float, str]]:
    for line in lines:
        if found := _LINE.match(line):
            yield datetime.fromisoformat(found[1]).timestamp(), found[2]
