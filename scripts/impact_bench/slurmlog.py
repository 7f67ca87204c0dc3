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
LOOK = "Processing RPC: REQUEST_NODE_INFO from UID="  # the controller's: ordinary jobs ask no such
_LINE = re.compile(r"\[(\d{4}-\d\d-\d\dT[\d:.]+)\] (.*)")
_JOB = r"JobId=(?:\d+_\d+\()?(?P<{}>\d+)\)?"  # 13, or 5_1(13) of an array
_KEY = _JOB.format("key")
_WITH_ARRAY = _KEY.replace(r"(?:\d+", r"(?:(?P<other>\d+)", 1)
# Each kind of line has the job that it is kept by. ``other`` is its array, another job, or a node.
_KINDS = {
    "allocated": re.compile(rf"(?:sched: Allocate|_start_job: Started) {_WITH_ARRAY} "),
    "backfilled": re.compile(rf"sched/backfill: _start_job: Started {_KEY} "),
    "preempted": re.compile(
        rf"preempted {_JOB.format('other')} has been requeued to reclaim resources for {_KEY}\b"
    ),
    "ending": re.compile(rf"_job_requeue_op: {_KEY} "),
    "known": re.compile(rf"_slurm_rpc_epilog_complete: {_KEY} Node=(?P<other>\S+)"),
}
# Of each kind and job, in order: Unix seconds, and the array, the other job or the node.
Log: TypeAlias = Mapping[tuple[str, int], Sequence[tuple[float, str]]]


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when an element had a node, or waited for it; Unix seconds.

    From ``ending_s`` on it was ending. If it had not ended, ``until_s`` is inf, and the log
    does not tell the node.
    """

    array: str
    node: str
    from_s: float
    until_s: float
    ending_s: float


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
            ends = (one for one in log.get(("known", job), ()) if one[0] >= at_s)
            until_s, node = next(ends, (math.inf, ""))
            asked = (one for one, _ in log.get(("ending", job), ()) if at_s <= one <= until_s)
            yield Span(array, node, at_s, until_s, next(asked, until_s))


def read_looks(lines: Iterable[str], scheduler: str) -> list[float]:
    """Return when ``MAIN`` or ``BACKFILL`` looked for jobs to start, or the controller ``LOOK``."""
    return [time_s for time_s, text in _timed(lines) if scheduler in text]


def _timed(lines: Iterable[str]) -> Iterator[tuple[float, str]]:
    for line in lines:
        if found := _LINE.match(line):
            yield datetime.fromisoformat(found[1]).timestamp(), found[2]
