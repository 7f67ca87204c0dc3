"""The stream of ordinary jobs: what is submitted when, and when each really started and ended."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class OrdinaryJob:
    """A job of ``nodes`` nodes that sleeps ``runs_s`` seconds, submitted at ``at_s``.

    Its time limit in Slurm is ``minutes``. It has ``gpus`` of each node; 0: whole nodes.
    """

    at_s: float
    nodes: int
    runs_s: float
    minutes: int = 5
    gpus: int = 0


@dataclass(frozen=True)
class Submitted:
    """A submitted job, and the files in which it notes when it starts and ends."""

    job: OrdinaryJob
    number: int  # Slurm's job id
    submit_s: float  # just before sbatch
    name: Path

    @property
    def start_s(self) -> float | None:
        """When its first line ran; None: not yet."""
        return _time_in(self.name, "start")

    @property
    def end_s(self) -> float | None:
        """When its last line ran; None: not yet."""
        return _time_in(self.name, "end")

    @property
    def delay_s(self) -> float:
        """Seconds from its submission to its first line; it must have started."""
        assert self.start_s is not None
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
#SBATCH --time={minutes} --output=/dev/null
date +%s.%N > {name}.start
sleep {runs_s}
date +%s.%N > {name}.end
"""
_TICK_S = 0.5
Run = Callable[..., subprocess.CompletedProcess[str]]
_SBATCH = ("sbatch", "--parsable")


def run_stream(
    stream: Sequence[OrdinaryJob], folder: Path, run: Run, tick: Callable[[float], None]
) -> list[Submitted]:
    """Submit the stream and wait until all of it has ended; ``tick`` is called twice a second.

    ``run`` runs a command as the user whose jobs these are; ``folder`` is that user's.
    """
    # slurmctld looks at new batch jobs once a second, so both runs begin at the same part of one.
    time.sleep(1 - time.time() % 1)
    submitted, begin_s = list[Submitted](), time.time()
    while len(submitted) < len(stream) or any(one.end_s is None for one in submitted):
        now_s = time.time() - begin_s
        while (left := stream[len(submitted) :]) and left[0].at_s <= now_s:
            submitted.append(submit_job(left[0], folder / f"job-{len(submitted)}", run))
        tick(now_s)
        now_s = time.time() - begin_s
        next_s = min([now_s + _TICK_S - now_s % _TICK_S, *(one.at_s for one in left)])
        time.sleep(max(0.0, next_s - now_s))
    return submitted


def submit_job(job: OrdinaryJob, name: Path, run: Run) -> Submitted:
    """Submit one job, which notes when it starts and ends in files called ``name``."""
    script = _SCRIPT.format(minutes=job.minutes, name=name, runs_s=job.runs_s)
    submit_s = time.time()
    part = f"--gpus-per-node={job.gpus}" if job.gpus else "--exclusive"
    done = run(*_SBATCH, f"--nodes={job.nodes}", part, input=script)
    return Submitted(job, int(done.stdout), submit_s, name)


def _time_in(name: Path, suffix: str) -> float | None:
    try:
        text = name.with_suffix(f".{suffix}").read_text()
    except FileNotFoundError:
        return None
    return float(text) if text else None
