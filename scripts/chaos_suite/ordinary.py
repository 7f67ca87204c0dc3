"""A light stream of ordinary jobs, and what became of each of them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

_PATIENCE_S = 90.0  # from when Slurm is well until all have started and ended
_BAD = {"FAILED", "TIMEOUT", "CANCELLED", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"}

_SCRIPT = """#!/bin/sh
#SBATCH --time=5 --output=/dev/null --exclusive --partition=main
sleep {runs_s:.1f}
date +%s.%N > {path}
"""


@dataclass
class Stream:
    """Submits a job every ``gap_s`` seconds or so. ``sbatch`` submits a script, and may fail."""

    folder: Path
    sbatch: Callable[[str, int], subprocess.CompletedProcess[str]]
    chance: Random
    gap_s: float
    most_nodes: int
    submitted: int = 0
    ended: int = 0
    failed: list[str] = field(default_factory=list)
    _open: dict[int, tuple[Path, float]] = field(default_factory=dict)
    _next_s: float = 0.0

    def tick(self) -> None:
        """Submit the next one if it is time."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + self.chance.expovariate(1 / self.gap_s)
        path = self.folder / f"{self.submitted}.end"
        script = _SCRIPT.format(runs_s=self.chance.uniform(2, 8), path=path)
        try:
            done = self.sbatch(script, self.chance.randint(1, self.most_nodes))
        except subprocess.TimeoutExpired:
            return  # Slurm is disturbed just now, and sbatch has said so
        if done.returncode == 0:
            self.submitted += 1
            self._open[int(done.stdout)] = path, now_s

    def check(self, states: dict[int, str] | None) -> None:
        """Take note of what has ended; ``states`` are Slurm's, by job id, None: not known."""
        for job, (path, _) in list(self._open.items()):
            if path.exists():
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
