"""A small replay of its own: equal shares of the idle nodes, a rescale each time they change."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from bftrainer_slurm.replay.assessment.harvest import (
    HarvestOptions,
    HarvestResult,
    Reached,
    Sample,
)
from bftrainer_slurm.replay.playback import Started
from bftrainer_slurm.replay.trainers import TrainerSpec


def equal_shares(
    sample: Sample, trainers: tuple[TrainerSpec, ...], options: HarvestOptions, reached: Reached
) -> HarvestResult:
    """Replay a sample; each job of it starts a second late."""
    trace, running = sample.trace, trainers[: options.at_once]
    times_s = np.unique(np.append(trace.time_s, trace.end_s))
    idle, used_s, pool_s, samples = 0, 0.0, 0.0, 0.0
    for now_s, next_s in pairwise(times_s.tolist()):
        here = trace.time_s == now_s
        idle += int(trace.idle[here].sum()) - int((~trace.idle[here]).sum())
        length_s = next_s - now_s
        reached(next_s)
        share = idle // len(running)
        pool_s += idle * length_s
        for trainer in running:
            nodes = min(share, trainer.max_nodes)
            paused_s = min(length_s, trainer.rescale_up_s)
            used_s += nodes * length_s
            samples += trainer.curve.at(nodes) * (length_s - paused_s)
    span_s = float(times_s[-1] - times_s[0])
    mean = pool_s / span_s / len(running)
    static = sum(one.curve.at(1) * min(mean, one.max_nodes) for one in running) * span_s
    efficiency = samples / static if static else 0.0
    jobs = () if sample.play is None else sample.play.jobs
    started = tuple(Started(1.0, 0, False) for one in jobs if one.start_s < sample.to_s)
    known = None if sample.play is None else started
    return HarvestResult(used_s / 3600, efficiency, samples, known)
