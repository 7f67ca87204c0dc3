"""What every log has in common: jobs, and what was noted while reading.

Readers yield jobs one by one; a year of a large centre lies in memory in columns, not as objects.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

SHOWN_LINES = 5
_EXCERPT = 120
_LATEST_S = 4_102_444_800.0  # the year 2100: what is later is a broken field


class LogError(ValueError):
    """A log cannot be used; one line names the file, what is wrong, and the remedy."""


class Job(NamedTuple):
    """One stretch in which a job held nodes, or waited in vain; times are Unix seconds.

    ``end_s`` is infinite while it runs, ``start_s`` where it never started: then it left the queue
    at ``end_s``. ``node_list`` is in Slurm's syntax, empty where the log has none. The same ``key``
    marks a stretch that the log shows twice; ``line`` is where it stands in the file.
    ``eligible_s`` is NaN where the log has no time of submission; ``backfilled``: backfill has
    started it, None: the log does not say. ``gpus`` and ``memory_mb`` are of all its nodes, 0 where
    it has none or the log does not say; ``limit_s`` is its time limit, infinite where it has none.
    """

    line: int
    key: int
    start_s: float
    end_s: float
    nodes: int
    cpus: int
    node_list: str
    eligible_s: float = math.nan
    backfilled: bool | None = None
    priority: int = 0
    partition: str = ""
    gpus: int = 0
    memory_mb: float = 0.0
    limit_s: float = math.inf


_SCHEDULERS = (None, False, True)


class JobTable:
    """The jobs of a log, a column a field; of those that it shows twice, the last row."""

    def __init__(self) -> None:
        self._key, self._priority = array("q"), array("q")
        self._eligible_s, self._start_s, self._end_s = array("d"), array("d"), array("d")
        self._nodes, self._partition = array("i"), array("i")
        self._scheduler = array("b")
        self._gpus, self._memory_mb, self._limit_s = array("i"), array("f"), array("f")
        self._partitions: dict[str, int] = {}
        self._node_lists: list[str] = []

    def add(self, job: Job) -> None:
        """Take in a job."""
        self._key.append(job.key)
        self._priority.append(job.priority)
        self._eligible_s.append(job.eligible_s)
        self._start_s.append(job.start_s)
        self._end_s.append(job.end_s)
        self._nodes.append(job.nodes)
        self._partition.append(self._partitions.setdefault(job.partition, len(self._partitions)))
        self._scheduler.append(_SCHEDULERS.index(job.backfilled))
        self._gpus.append(job.gpus)
        self._memory_mb.append(job.memory_mb)
        self._limit_s.append(job.limit_s)
        self._node_lists.append(job.node_list)

    def counts(self) -> tuple[int, int]:
        """Return how many jobs have started, and how many of them have no end."""
        started = np.isfinite(np.array(self._start_s))
        key, end_s = np.array(self._key)[started], np.array(self._end_s)[started]
        ended = np.unique(key[np.isfinite(end_s)])
        every = np.unique(key)
        return len(every), len(every) - len(ended)

    def says_who_waited(self) -> bool:
        """Whether any job has a time of submission."""
        return bool(np.isfinite(np.array(self._eligible_s)).any())

    def waiting(self, from_s: float, width_s: float, count: int) -> list[tuple[slice, Job]]:
        """Return who waits in the middle of which cells of time, of so many cells."""
        eligible_s, start_s, end_s = map(np.array, (self._eligible_s, self._start_s, self._end_s))
        gone_s = np.minimum(start_s, end_s)
        cells = (np.stack([eligible_s, gone_s]) - from_s) / width_s + 0.5
        first, last = np.clip(np.nan_to_num(cells), 0, count).astype(np.int64)
        rows = np.flatnonzero((first < last) & np.isfinite(eligible_s)).tolist()
        return [(slice(int(first[row]), int(last[row])), self._job(row)) for row in rows]

    def between(self, from_s: float, to_s: float) -> list[Job]:
        """Return the jobs that wait, start or run then, in the order of the log."""
        eligible_s, start_s, end_s = map(np.array, (self._eligible_s, self._start_s, self._end_s))
        first_s = np.fmin(eligible_s, start_s)
        rows = np.flatnonzero((first_s < to_s) & (end_s > from_s))
        last = {self._key[row]: row for row in rows.tolist()}
        return [self._job(row) for row in sorted(last.values())]

    def _job(self, row: int) -> Job:
        names = list(self._partitions)
        return Job(
            line=0,
            key=self._key[row],
            start_s=self._start_s[row],
            end_s=self._end_s[row],
            nodes=self._nodes[row],
            cpus=0,
            node_list=self._node_lists[row],
            eligible_s=self._eligible_s[row],
            backfilled=_SCHEDULERS[self._scheduler[row]],
            priority=self._priority[row],
            partition=names[self._partition[row]],
            gpus=self._gpus[row],
            memory_mb=self._memory_mb[row],
            limit_s=self._limit_s[row],
        )


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that was skipped, and why; ``text`` is raw: escape it before you show it."""

    number: int
    why: str
    text: str


@dataclass(slots=True)
class Notes:
    """What a reader noted: how many lines were what, and the first few that it could not read."""

    jobs: int = 0
    never_ran: int = 0
    steps: int = 0
    running: int = 0
    malformed: int = 0
    bad_lines: list[BadLine] = field(default_factory=list)
    last_submit_s: float = -math.inf

    def skip(self, number: int, line: str, why: str) -> None:
        """Count a line that cannot be read, and keep it if it is one of the first."""
        self.malformed += 1
        if len(self.bad_lines) < SHOWN_LINES:
            self.bad_lines.append(BadLine(number, why[:_EXCERPT], line[:_EXCERPT]))


def checked(job: Job) -> Job:
    """Return the job; raise ValueError where its times or sizes cannot be."""
    never = math.isinf(job.start_s) and job.end_s < math.inf
    if not (0 <= job.start_s < _LATEST_S or never):
        raise ValueError("its start is no time of this century or the last")
    if job.end_s < job.start_s and not never:
        raise ValueError("it ends before it starts")
    if _LATEST_S <= job.end_s < math.inf:
        raise ValueError("its end is no time of this century or the last")
    if not (0 < job.nodes < 1 << 24 and 0 <= job.cpus < 1 << 31):
        raise ValueError("its number of nodes or CPUs cannot be")
    if not (0 <= job.gpus < 1 << 24 and 0 <= job.memory_mb < 1e12 and job.limit_s >= 0):
        raise ValueError("its GPUs, memory or time limit cannot be")
    return job
