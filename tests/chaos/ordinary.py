"""A light stream of ordinary jobs, and what became of each of them."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random

from scripts.demonstration.stream import OrdinaryJob, Submitted, submit_job
from scripts.labcluster.cluster import LabError
from scripts.labcluster.site import Site

_GAP_S = 12.0  # between two, on average
_MOST_NODES = 2
_PATIENCE_S = 90.0  # from when Slurm is well until all have started and ended
_BAD = {"FAILED", "TIMEOUT", "CANCELLED", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"}


@dataclass
class Stream:
    """Submits a job every few seconds, as bob."""

    site: Site
    chance: Random
    submitted: int = 0
    failed: list[str] = field(default_factory=list)
    _open: dict[int, tuple[Submitted, float]] = field(default_factory=dict)
    _next_s: float = 0.0

    def tick(self) -> None:
        """Submit the next one if it is time."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + self.chance.expovariate(1 / _GAP_S)
        runs_s = round(self.chance.uniform(2, 8), 1)
        job = OrdinaryJob(0.0, self.chance.randint(1, _MOST_NODES), runs_s)
        as_bob = partial(self.site.run, user="bob", timeout_s=10.0)
        name = self.site.lab.home("bob") / f"job-{self.submitted}"
        # Where Slurm is disturbed just now, sbatch says so.
        with suppress(LabError, subprocess.TimeoutExpired):
            one = submit_job(job, name, as_bob)
            self.submitted += 1
            self._open[one.number] = one, now_s

    def check(self, states: dict[int, str], since_s: float) -> list[str]:
        """Return all that has gone wrong so far; ``states`` are Slurm's, by job id.

        The time that a job may take is counted from ``since_s`` on.
        """
        for job, (one, _) in list(self._open.items()):
            if one.end_s is not None:
                del self._open[job]
            elif states.get(job) in _BAD:
                self.failed.append(f"ordinary job {job} is {states[job]}")
                del self._open[job]
        now_s = time.monotonic()
        return self.failed + [
            f"ordinary job {job} has not ended after {now_s - submit_s:.0f} s"
            for job, (_, submit_s) in self._open.items()
            if now_s - max(submit_s, since_s) > _PATIENCE_S
        ]

    def forget(self) -> None:
        """Forget all jobs: Slurm has lost them."""
        self._open.clear()
