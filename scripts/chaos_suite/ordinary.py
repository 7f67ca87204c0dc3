"""A light stream of ordinary jobs, and what became of each of them."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from scripts.demonstration.stream import OrdinaryJob, Run, Submitted, submit_job
from scripts.labcluster.cluster import LabError

_PATIENCE_S = 90.0  # from when Slurm is well until all have started and ended
_BAD = {"FAILED", "TIMEOUT", "CANCELLED", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"}


@dataclass
class Stream:
    """Submits a job every ``gap_s`` seconds or so; ``run`` runs sbatch, and may fail."""

    folder: Path
    run: Run
    chance: Random
    gap_s: float
    most_nodes: int
    submitted: int = 0
    ended: int = 0
    failed: list[str] = field(default_factory=list)
    _open: dict[int, tuple[Submitted, float]] = field(default_factory=dict)
    _next_s: float = 0.0

    def tick(self) -> None:
        """Submit the next one if it is time."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + self.chance.expovariate(1 / self.gap_s)
        runs_s = self.chance.uniform(2, 8)
        job = OrdinaryJob(0.0, self.chance.randint(1, self.most_nodes), round(runs_s, 1))
        # Where Slurm is disturbed just now, sbatch says so.
        with suppress(LabError, subprocess.TimeoutExpired):
            one = submit_job(job, self.folder / f"job-{self.submitted}", self.run)
            self.submitted += 1
            self._open[one.number] = one, now_s

    def check(self, states: dict[int, str] | None) -> None:
        """Take note of what has ended; ``states`` are Slurm's, by job id, None: not known."""
        for job, (one, _) in list(self._open.items()):
            if one.end_s is not None:
                self.ended += 1
                del self._open[job]
            elif states is not None and states.get(job) in _BAD:
                self.failed.append(f"ordinary job {job} is {states[job]}")
                del self._open[job]

    def overdue(self, since_s: float) -> list[str]:
        """Return the jobs that have had time enough, counted from ``since_s``, and not ended."""
        now_s = time.monotonic()
        return [
            f"ordinary job {job} has not ended after {now_s - submit_s:.0f} s"
            for job, (_, submit_s) in self._open.items()
            if now_s - max(submit_s, since_s) > _PATIENCE_S
        ]

    def forget(self) -> None:
        """Slurm has lost all of its jobs."""
        self._open.clear()
