"""From a log's jobs to those that are played back: when each waits, and which holes it ends.

If Slurm's accounting does not say which scheduler started a job, its times and nodes tell.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bftrainer_slurm.replay.logs.holes import HoleTable
from bftrainer_slurm.replay.logs.jobs import Job
from bftrainer_slurm.replay.logs.log import Log
from bftrainer_slurm.replay.logs.nodes import expand
from bftrainer_slurm.replay.playback import PlayedJob

_AT_ONCE_S = 5.0  # from submission to start by the main scheduler; batch_sched_delay is 3 s


@dataclass(frozen=True, slots=True)
class Play:
    """What is played back in a time; ``kinds`` are the partitions of each node of its trace."""

    jobs: tuple[PlayedJob, ...]
    kinds: tuple[frozenset[str], ...]


def play_of(log: Log, holes: HoleTable, from_s: float, to_s: float) -> Play | None:
    """Return what to play back from a part of a log, which has these holes.

    None if the log does not say when jobs were submitted.
    """
    if log.jobs is None:
        return None
    jobs = log.jobs.between(from_s, to_s)
    known = [job for job in jobs if not math.isnan(job.eligible_s)]
    if not known:
        return None
    taken = _takers(holes, to_s)
    started = sorted(
        (job for job in known if job.end_s > from_s), key=lambda one: (one.start_s, one.eligible_s)
    )
    ranks = _ranks(started)
    played = [_played(job, rank, taken) for job, rank in zip(started, ranks, strict=True)]
    in_time = (one for one in played if one.start_s >= from_s)
    return Play(tuple(in_time), log.kinds)


def _played(job: Job, rank: int, taken: Callable[[Job], tuple[int, ...]]) -> PlayedJob:
    takes = taken(job)
    backfilled = job.backfilled
    if backfilled is None:
        # The main scheduler starts jobs as they come, and on nodes that another job just leaves.
        at_once = job.start_s - job.eligible_s <= _AT_ONCE_S
        backfilled = not at_once and len(takes) == job.nodes
    gone_s = min(job.start_s, job.end_s)
    return PlayedJob(
        job.eligible_s,
        job.start_s,
        gone_s,
        job.nodes,
        takes,
        backfilled,
        rank,
        job.partition,
        job.limit_s,
    )


def _ranks(jobs: Sequence[Job]) -> list[int]:
    """Return priorities: the log's, or else the longest wait comes first."""
    if any(job.priority for job in jobs):
        return [job.priority for job in jobs]
    first = sorted(range(len(jobs)), key=lambda one: jobs[one].eligible_s)
    rank = dict(zip(first, range(len(jobs), 0, -1), strict=True))
    return [rank[one] for one in range(len(jobs))]


def _takers(holes: HoleTable, to_s: float) -> Callable[[Job], tuple[int, ...]]:
    """Return a function: which holes end when a job starts; each hole belongs to one job."""
    number = {name: at for at, name in enumerate(holes.nodes)}
    ending: dict[int, dict[int, None]] = defaultdict(dict)  # the nodes, by milliseconds
    for node, end_s in zip(holes.node.tolist(), holes.end_s.tolist(), strict=True):
        if end_s < to_s:
            ending[_ms(end_s)][node] = None

    def taken(job: Job) -> tuple[int, ...]:
        here = ending.get(_ms(job.start_s)) if math.isfinite(job.start_s) else None
        if not here:
            return ()
        if job.node_list:
            its = {number[name] for name in expand(job.node_list) if name in number}
            found = [node for node in here if node in its]
        else:
            found = list(here)[: job.nodes]
        for node in found:
            del here[node]
        return tuple(found)

    return taken


def _ms(time_s: float) -> int:
    return round(1000 * time_s)
