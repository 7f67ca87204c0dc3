"""The stream of ordinary jobs: what is submitted when, and when each really started and ended."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class OrdinaryJob:
    """A job of ``nodes`` nodes that sleeps ``runs_s`` seconds, submitted at ``at_s``."""

    at_s: float
    nodes: int
    runs_s: float


@dataclass(frozen=True)
class Outcome:
    """What became of an ordinary job; Unix seconds, start and end told by the job itself."""

    job: OrdinaryJob
    submit_s: float
    start_s: float
    end_s: float

    @property
    def delay_s(self) -> float:
        """Seconds from its submission to its first line running."""
        return self.start_s - self.submit_s


# For eight nodes. The large job makes nodes drain from second 24 on, until the job of second 6 has
# ended.
STREAM = (
    OrdinaryJob(0, 2, 20),
    OrdinaryJob(6, 1, 44),
    OrdinaryJob(24, 8, 8),
    OrdinaryJob(60, 2, 14),
    OrdinaryJob(63, 1, 9),
    OrdinaryJob(70, 3, 8),
    OrdinaryJob(78, 1, 6),
    OrdinaryJob(80, 2, 6),
)

_SCRIPT = """#!/bin/sh
#SBATCH --time=5 --output=/dev/null
date +%s.%N > {name}.start
sleep {runs_s}
date +%s.%N > {name}.end
"""
_SBATCH = ("sbatch", "--parsable", "--exclusive")


def run_stream(
    stream: Sequence[OrdinaryJob],
    folder: Path,
    run: Callable[..., subprocess.CompletedProcess[str]],
    tick: Callable[[float], None],
) -> list[Outcome]:
    """Submit the stream and wait until all of it has ended; ``tick`` is called twice a second.

    ``run`` runs a command as the user whose jobs these are; ``folder`` is that user's.
    """
    begin_s = _next_second()
    submitted: list[tuple[OrdinaryJob, float, Path]] = []
    while len(submitted) < len(stream) or not all(_ended(name) for _, _, name in submitted):
        now_s = time.time() - begin_s
        while len(submitted) < len(stream) and stream[len(submitted)].at_s <= now_s:
            job, name = stream[len(submitted)], folder / f"job-{len(submitted)}"
            script = _SCRIPT.format(name=name, runs_s=job.runs_s)
            submit_s = time.time()
            run(*_SBATCH, f"--nodes={job.nodes}", input=script)
            submitted.append((job, submit_s, name))
        tick(now_s)
        time.sleep(0.5 - min(0.5, (time.time() - begin_s) % 0.5))
    return [
        Outcome(job, submit_s, _time_in(name, "start"), _time_in(name, "end"))
        for job, submit_s, name in submitted
    ]


def _next_second() -> float:
    """Wait for a whole second: slurmctld looks at new batch jobs once a second, and the two runs
    of a stream should meet it at the same moment.
    """
    time.sleep(1 - time.time() % 1)
    return time.time()


def _ended(name: Path) -> bool:
    end = name.with_suffix(".end")
    return end.exists() and end.stat().st_size > 0


def _time_in(name: Path, suffix: str) -> float:
    return float(name.with_suffix(f".{suffix}").read_text())
