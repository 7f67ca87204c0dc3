"""Where an ordinary job's start delay goes, read from the logs of slurmctld and slurmd. Pure.

The lines are those of Slurm 22.05 at debug2; where another version says it otherwise, fewer jobs
are found, and the table says how many it speaks of.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import TypeAlias

from scripts.impact_bench.course import Start

# What lies between two moments of the way of a job that takes nodes from elements.
RECLAIMING = (
    "sbatch, until slurmctld has the job",
    "until slurmctld preempts the elements",
    "until slurmd has sent SIGTERM to the element",
    "until the element's last task has ended",
    "until its slurmstepds are gone",
    "until slurmd has noticed",
    "until slurmctld knows that",
    "until slurmctld gives the job its nodes",
    "until its first line runs",
)
# And of one that finds idle nodes, or waits for those of ordinary jobs.
DIRECT = (
    "sbatch, until slurmctld has the job",
    "until slurmctld gives the job its nodes",
    "until its first line runs",
)

_LINE = re.compile(r"\[(\d{4}-\d\d-\d\dT[\d:.]+)\] (.*)")
# What slurmctld's two schedulers write as they begin.
MAIN = "sched: Running job scheduler"
BACKFILL = "sched/backfill: _attempt_backfill: beginning"
_CLOCK_S = 0.01  # the daemons' lines may be in another order by so much
_JOB = r"JobId=(?:\d+_\d+\()?(?P<{}>\d+)\)?"  # 13, or 5_1(13) of an array
_KEY = _JOB.format("key")
# Each kind of line has the job that it is kept by, and some have another one or a node: ``other``.
_KINDS = {
    "submitted": re.compile(rf"_slurm_rpc_submit_batch_job: {_KEY} "),
    "allocated": re.compile(rf"(?:sched: Allocate|_start_job: Started) {_KEY} "),
    "backfilled": re.compile(rf"sched/backfill: _start_job: Started {_KEY} "),
    "preempted": re.compile(
        rf"preempted {_JOB.format('other')} has been requeued to reclaim resources for {_KEY}\b"
    ),
    "known": re.compile(rf"_slurm_rpc_epilog_complete: {_KEY} Node=(?P<other>\S+)"),
    "signalled": re.compile(r"\[(?P<key>\d+)\.\w+\] Sent signal 15"),
    "ended": re.compile(r"\[(?P<key>\d+)\.\w+\] task \d+ \(\d+\) exited"),
    "gone": re.compile(r"\[(?P<key>\d+)\.\w+\] done with job"),
    "noticed": re.compile(r"completed epilog for jobid (?P<key>\d+)"),
}
# Of each kind and job, in order: Unix seconds, and the other job or the node.
Log: TypeAlias = Mapping[tuple[str, int], Sequence[tuple[float, str]]]


@dataclass(frozen=True, slots=True)
class Way:
    """A job's moments, Unix seconds: as many as ``RECLAIMING`` or ``DIRECT`` has parts, and one."""

    number: int
    moments_s: tuple[float, ...]

    @property
    def parts_s(self) -> tuple[float, ...]:
        """How long each part took, in seconds."""
        return tuple(late - early for early, late in pairwise(self.moments_s))


def read_log(lines: Iterable[str]) -> Log:
    """Read the log of slurmctld, or of a slurmd; what is not needed is passed over."""
    log: dict[tuple[str, int], list[tuple[float, str]]] = defaultdict(list)
    for time_s, text in _timed(lines):
        for kind, pattern in _KINDS.items():
            if found := pattern.search(text):
                other = found.groupdict().get("other", "")
                log[kind, int(found["key"])].append((time_s, other))
    return dict(log)


def read_looks(lines: Iterable[str], scheduler: str) -> list[float]:
    """Read from slurmctld's log when ``MAIN`` or ``BACKFILL`` looked for jobs to start."""
    return [time_s for time_s, text in _timed(lines) if scheduler in text]


def direct(controls: Log, starts: Iterable[Start]) -> list[Way]:
    """Return the ways of the jobs for which no element had to go, from slurmctld's log."""
    ways = []
    for start in starts:
        submitted, allocated, preempted = _of_job(controls, start)
        if submitted and allocated and not preempted and start.start_s is not None:
            moments_s = (start.submit_s, submitted[-1][0], allocated[0][0], start.start_s)
            ways.append(Way(start.number, moments_s))
    return ways


def reclaiming(controls: Log, nodes: Mapping[str, Log], starts: Iterable[Start]) -> list[Way]:
    """Return the ways of the jobs that took nodes from elements, by the element gone last.

    ``nodes`` has the log of each slurmd. Jobs of which the logs have too little are left out.
    """
    ways = []
    for start in starts:
        submitted, allocated, preempted = _of_job(controls, start)
        gone = [
            (known_s, preempted_s, int(element), node)
            for preempted_s, element in preempted
            for known_s, node in _since(controls, "known", int(element), preempted_s)[:1]
        ]
        if not (gone and submitted and allocated) or start.start_s is None:
            continue
        known_s, preempted_s, element, node = max(gone)
        there = [
            [at_s for at_s, _ in _since(nodes.get(node, {}), kind, element, preempted_s - _CLOCK_S)]
            for kind in ("signalled", "ended", "gone", "noticed")
        ]
        # A node has the same element more than once.
        there = [[at_s for at_s in times if at_s <= known_s + _CLOCK_S] for times in there]
        if all(there):
            until = (there[0][0], *(times[-1] for times in there[1:]), known_s, allocated[0][0])
            before = (start.submit_s, submitted[-1][0], preempted_s)
            ways.append(Way(start.number, (*before, *until, start.start_s)))
    return ways


def _of_job(controls: Log, start: Start) -> list[Sequence[tuple[float, str]]]:
    kinds = ("submitted", "allocated", "preempted")
    return [controls.get((kind, start.number), ()) for kind in kinds]


def _since(log: Log, kind: str, job: int, since_s: float) -> list[tuple[float, str]]:
    return [one for one in log.get((kind, job), ()) if one[0] >= since_s]


def _timed(lines: Iterable[str]) -> Iterator[tuple[float, str]]:
    for line in lines:
        if found := _LINE.match(line):
            yield datetime.fromisoformat(found[1]).timestamp(), found[2]
