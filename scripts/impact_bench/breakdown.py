"""Where an ordinary job's start delay goes, read from the logs of slurmctld and slurmd. Pure.

The lines are those of Slurm 22.05 at debug2; where another version says it otherwise, fewer jobs
are found, and the table says how many it speaks of.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

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
_JOB = r"JobId=(?:\d+_\d+\((\d+)\)|(\d+))"
_SUBMITTED = re.compile(rf"_slurm_rpc_submit_batch_job: {_JOB} ")
_PREEMPTED = re.compile(
    rf"preempted {_JOB} has been requeued to reclaim resources for JobId=(\d+)\b"
)
_ALLOCATED = re.compile(rf"(?:sched: Allocate|_start_job: Started) {_JOB} ")
_KNOWN = re.compile(rf"_slurm_rpc_epilog_complete: {_JOB} Node=(\S+)")
_STEP = re.compile(r"\[(\d+)\.\w+\] (?:(Sent signal 15)|(task \d+ \(\d+\) exited)|(done with job))")
_LOOK = "sched: Running job scheduler"
_NOTICED = re.compile(r"completed epilog for jobid (\d+)")


@dataclass(frozen=True, slots=True)
class Way:
    """A job's moments, Unix seconds: as many as ``RECLAIMING`` or ``DIRECT`` has parts, and one."""

    number: int
    moments_s: tuple[float, ...]

    @property
    def parts_s(self) -> tuple[float, ...]:
        """How long each part took, in seconds."""
        return tuple(late - early for early, late in pairwise(self.moments_s))


@dataclass(frozen=True, slots=True)
class Controls:
    """What slurmctld's log says."""

    submitted_s: Mapping[int, float]
    allocated_s: Mapping[int, float]
    preempted: Mapping[int, tuple[tuple[float, int], ...]]  # by the job: when, and which element
    known: Mapping[int, tuple[tuple[float, str], ...]]  # by element: when it was gone, from where


@dataclass(frozen=True, slots=True)
class Node:
    """What one slurmd's log says of each element, in order: a node has it more than once."""

    signalled_s: Mapping[int, Sequence[float]]
    ended_s: Mapping[int, Sequence[float]]
    gone_s: Mapping[int, Sequence[float]]
    noticed_s: Mapping[int, Sequence[float]]


def read_controls(lines: Iterable[str]) -> Controls:
    """Read slurmctld's log."""
    submitted: dict[int, float] = {}
    allocated: dict[int, float] = {}
    preempted: dict[int, list[tuple[float, int]]] = defaultdict(list)
    known: dict[int, list[tuple[float, str]]] = defaultdict(list)
    for time_s, text in _timed(lines):
        if found := _SUBMITTED.search(text):
            submitted[_number(found)] = time_s
        elif found := _ALLOCATED.search(text):
            allocated.setdefault(_number(found), time_s)
        elif found := _PREEMPTED.search(text):
            preempted[int(found[3])].append((time_s, _number(found)))
        elif found := _KNOWN.search(text):
            known[_number(found)].append((time_s, found[3]))
    return Controls(
        submitted,
        allocated,
        {job: tuple(found) for job, found in preempted.items()},
        {job: tuple(found) for job, found in known.items()},
    )


def read_looks(lines: Iterable[str]) -> list[float]:
    """Read from slurmctld's log when its main scheduler looked for jobs to start."""
    return [time_s for time_s, text in _timed(lines) if _LOOK in text]


def read_node(lines: Iterable[str]) -> Node:
    """Read the log of a node's slurmd."""
    kinds: tuple[dict[int, list[float]], ...] = tuple(defaultdict(list) for _ in range(4))
    for time_s, text in _timed(lines):
        if found := _STEP.search(text):
            kind = next(number for number, word in enumerate(found.groups()[1:]) if word)
            kinds[kind][int(found[1])].append(time_s)
        elif found := _NOTICED.search(text):
            kinds[3][int(found[1])].append(time_s)
    return Node(*kinds)


def reclaiming(controls: Controls, nodes: Mapping[str, Node], starts: Iterable[Start]) -> list[Way]:
    """Return the ways of the jobs that took nodes from elements, by the element gone last."""
    found = (_reclaiming(controls, nodes, start) for start in starts)
    return [way for way in found if way is not None]


def direct(controls: Controls, starts: Iterable[Start]) -> list[Way]:
    """Return the ways of the jobs for which no element had to go."""
    ways = []
    for start in starts:
        submitted_s = controls.submitted_s.get(start.number)
        allocated_s = controls.allocated_s.get(start.number)
        if (
            start.number not in controls.preempted
            and submitted_s is not None
            and allocated_s is not None
            and start.start_s is not None
        ):
            moments_s = (start.submit_s, submitted_s, allocated_s, start.start_s)
            ways.append(Way(start.number, moments_s))
    return ways


def _reclaiming(controls: Controls, nodes: Mapping[str, Node], start: Start) -> Way | None:
    elements = controls.preempted.get(start.number, ())
    submitted_s = controls.submitted_s.get(start.number)
    allocated_s = controls.allocated_s.get(start.number)
    if not elements or submitted_s is None or allocated_s is None or start.start_s is None:
        return None
    lasts = [
        (known_s, preempted_s, element, node)
        for preempted_s, element in elements
        if (gone := _next(controls.known.get(element, ()), preempted_s)) is not None
        for known_s, node in (gone,)
    ]
    if not lasts:
        return None
    known_s, preempted_s, element, name = max(lasts)
    node = nodes.get(name)
    if node is None:
        return None
    within = [
        [one for one in times.get(element, ()) if preempted_s - 0.01 <= one <= known_s + 0.01]
        for times in (node.signalled_s, node.ended_s, node.gone_s, node.noticed_s)
    ]
    if not all(within):
        return None
    signalled, ended, gone_s, noticed = within
    moments_s = (
        *(start.submit_s, submitted_s, preempted_s, signalled[0]),
        *(ended[-1], gone_s[-1], noticed[-1], known_s, allocated_s, start.start_s),
    )
    return Way(start.number, moments_s)


def _next(events: Sequence[tuple[float, str]], since_s: float) -> tuple[float, str] | None:
    place = bisect_left(events, (since_s, ""))
    return events[place] if place < len(events) else None


def _number(found: re.Match[str]) -> int:
    return int(found[1] or found[2])


def _timed(lines: Iterable[str]) -> Iterator[tuple[float, str]]:
    for line in lines:
        if found := _LINE.match(line):
            yield datetime.fromisoformat(found[1]).timestamp(), found[2]
