"""In place of a replay: trainers use more of what is idle where more is idle."""

from __future__ import annotations

from bftrainer_slurm.replay.assessment.harvest import (
    HarvestOptions,
    HarvestResult,
    Reached,
    Sample,
)
from bftrainer_slurm.replay.playback import Started
from bftrainer_slurm.replay.trainers import TrainerSpec


def a_share(
    sample: Sample, trainers: tuple[TrainerSpec, ...], options: HarvestOptions, reached: Reached
) -> HarvestResult:
    """Of n idle nodes, m trainers use n / (n + m); each job of the sample starts a second late."""
    for now_s in sample.trace.time_s.tolist():
        reached(now_s)
    share = sample.mean_idle / (sample.mean_idle + options.at_once)
    known = None
    if sample.play is not None:
        started = (one for one in sample.play.jobs if one.start_s < sample.to_s)
        known = tuple(Started(1.0, 0, False) for _ in started)
    return HarvestResult(share * sample.idle_hours, 0.9 * share, 1000.0, known)
