"""What every log has in common: a job that ran, and what was noted while reading.

Readers yield jobs one by one; a year of a large centre never lies in memory as objects.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

SHOWN_LINES = 5
_EXCERPT = 120
_LATEST_S = 4_102_444_800.0  # the year 2100: what is later is a broken field


class LogError(ValueError):
    """A log cannot be used; one line names the file, what is wrong, and the remedy."""


class Job(NamedTuple):
    """One stretch in which a job held nodes; times are Unix seconds.

    ``end_s`` is infinite while it runs. ``node_list`` is in Slurm's syntax, empty where the log
    has none. The same ``key`` marks a stretch that the log shows twice;
    ``line`` is where it stands in the file.
    """

    line: int
    key: int
    start_s: float
    end_s: float
    nodes: int
    cpus: int
    node_list: str


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

    def take(self, job: Job) -> None:
        """Count a job that is used."""
        self.jobs += 1
        self.running += job.end_s == math.inf

    def skip(self, number: int, line: str, why: str) -> None:
        """Count a line that cannot be read, and keep it if it is one of the first."""
        self.malformed += 1
        if len(self.bad_lines) < SHOWN_LINES:
            self.bad_lines.append(BadLine(number, why[:_EXCERPT], line[:_EXCERPT]))


def checked(job: Job) -> Job:
    """Return the job; raise ValueError where its times or sizes cannot be."""
    if not 0 <= job.start_s < _LATEST_S:
        raise ValueError("its start is no time of this century or the last")
    if job.end_s < job.start_s:
        raise ValueError("it ends before it starts")
    if _LATEST_S <= job.end_s < math.inf:
        raise ValueError("its end is no time of this century or the last")
    if not (0 < job.nodes < 1 << 24 and 0 <= job.cpus < 1 << 31):
        raise ValueError("its number of nodes or CPUs cannot be")
    return job
