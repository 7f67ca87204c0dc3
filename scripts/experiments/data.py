"""The recorded data of ``../shared/data``, as a run wants it; read once a process."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from bftrainer_slurm.replay.trace import Trace, read_events, select
from bftrainer_slurm.replay.trainers import TrainerSpec, read_trainers
from scripts.experiments.runs import Run

SUMMIT = Path(__file__).resolve().parents[3] / "shared" / "data" / "summit-2021-02"


def trace_of_run(run: Run) -> Trace:
    """Return the part of the trace that a run replays."""
    return _trace(run.nodes, run.from_s, run.hours)


def trainers_of_run(run: Run) -> tuple[TrainerSpec, ...]:
    """Return the trainers, all of them waiting from the start unless the run has its own."""
    trainers = run.repeat * _trainers(run.trainers)
    if run.from_s is not None:
        return trainers
    return tuple(replace(trainer, submit_s=0.0) for trainer in trainers)


@lru_cache(maxsize=4)
def _trace(nodes: int | None, from_s: float | None, hours: float | None) -> Trace:
    return select(read_events(SUMMIT / "node-events-week1.parquet"), nodes, from_s, hours)


@lru_cache(maxsize=4)
def _trainers(name: str) -> tuple[TrainerSpec, ...]:
    return read_trainers(SUMMIT / f"trainers-{name}.json")
