"""What slurmctld's log says of each job, and when its schedulers looked. Pure.

The lines are those of Slurm 22.05 at debug2. If another version writes them differently, fewer
jobs are found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

_LINE = re.compile(r"\[(\d{4}-\d\d-\d\dT[\d:.]+)\] (.*)")
_JOB = r"JobId=(?:\d+_\d+\()?(?P<{}>\d+)\)?"  # 13, or 5_1(13) of an array
_KEY = _JOB.format("key")
_WITH_ARRAY = _KEY.replace(r"(?:\d+", r"(?:(?P<other>\d+)", 1)
# ``key`` is the job of a line, ``other`` its array, another job, or a node. A look (of the main
# scheduler) and a pass (of backfill) are of no job.
_KINDS = {
    "look": re.compile("sched: Running job scheduler"),
    "pass": re.compile("sched/backfill: _attempt_backfill: beginning"),
    "submitted": re.compile(rf"_slurm_rpc_submit_batch_job: {_KEY} "),
    "allocated": re.compile(rf"(?:sched: Allocate|_start_job: Started) {_WITH_ARRAY} "),
    "backfilled": re.compile(rf"_start_job: Started {_KEY} "),
    "preempted": re.compile(
        rf"preempted {_JOB.format('other')} has been requeued to reclaim resources for {_KEY}\b"
    ),
    "known": re.compile(rf"_slurm_rpc_epilog_complete: {_KEY} Node=(?P<other>\S+)"),
}


class Event(NamedTuple):
    """A line: when, in Unix seconds, of which kind and job, and its other word."""

    at_s: float
    kind: str
    job: int = 0
    other: str = ""


def read_log(lines: Iterable[str]) -> list[Event]:
    """Read the log; lines that are not needed are skipped."""
    log = list[Event]()
    for timed in filter(None, map(_LINE.match, lines)):
        for kind, pattern in _KINDS.items():
            if found := pattern.search(timed[2]):
                said, at_s = found.groupdict(), datetime.fromisoformat(timed[1]).timestamp()
                log.append(Event(at_s, kind, int(said.get("key") or 0), said.get("other") or ""))
    return log


def times_s(log: Iterable[Event], kind: str) -> list[float]:
    """Return when lines of a kind were written."""
    return [one.at_s for one in log if one.kind == kind]
