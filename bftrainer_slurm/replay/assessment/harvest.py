"""What trainers would have made of the holes: the replays that an assessment asks for.

The replay itself is handed in, so that nothing here knows the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from bftrainer_slurm.replay.assessment.coverage import Columns, idle_seconds
from bftrainer_slurm.replay.logs.holes import HoleTable, between, trace_of_holes
from bftrainer_slurm.replay.trace import Trace
from bftrainer_slurm.replay.trainers import TrainerSpec

HOUR_S = 3600.0
_SAMPLE_HOURS = (168, 72, 24, 12, 6, 3, 1)
_MOMENTS = 1000  # at which something happens in a sample, about
_FORWARD_TIMES_S = (30.0, 120.0, 600.0)
_RESCALE_SCALES = (0.01, 1.0, 3.0)


@dataclass(frozen=True, slots=True)
class HarvestOptions:
    """How to replay: trainers at once, T_fwd in seconds, what to multiply rescale times by."""

    at_once: int
    forward_time_s: float = 120.0
    rescale_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class HarvestResult:
    """What a replay gave.

    ``efficiency`` is U: samples, over those of the same trainers on as many dedicated nodes as
    were idle on average, in the same time without rescaling.
    """

    used_node_hours: float
    efficiency: float
    samples: float


Harvest = Callable[[Trace, tuple[TrainerSpec, ...], HarvestOptions], HarvestResult]


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """The part of a log that is replayed; Unix seconds."""

    trace: Trace
    from_s: float
    to_s: float
    whole: bool  # it is all of the log
    idle_node_hours: float

    @property
    def hours(self) -> float:
        """How long it is."""
        return (self.to_s - self.from_s) / HOUR_S

    @property
    def mean_pool_nodes(self) -> float:
        """How many nodes were idle on average."""
        return self.idle_node_hours / self.hours


@dataclass(frozen=True, slots=True)
class Replayed:
    """One replay of the sample."""

    options: HarvestOptions
    result: HarvestResult


def planned_replays(at_once: tuple[int, ...] = (10, 35)) -> tuple[HarvestOptions, ...]:
    """Return what is replayed: each number of trainers, and around the first a small grid."""
    grid = [
        HarvestOptions(at_once[0], forward_time_s, scale)
        for forward_time_s in _FORWARD_TIMES_S
        for scale in _RESCALE_SCALES
    ]
    wanted = [*map(HarvestOptions, at_once), *grid]
    return tuple(dict.fromkeys(wanted))


def replays(
    sample: Sample,
    trainers: tuple[TrainerSpec, ...],
    planned: tuple[HarvestOptions, ...],
    harvest: Harvest,
) -> Iterator[Replayed]:
    """Replay the sample once for each of the options; all trainers wait from the start."""
    waiting = tuple(replace(trainer, submit_s=sample.from_s) for trainer in trainers)
    for options in planned:
        yield Replayed(options, harvest(sample.trace, waiting, options))


def typical_sample(
    holes: HoleTable, from_s: float, to_s: float, hours: float | None = None
) -> Sample:
    """Return the part of a log to replay.

    That is the week (or, where too much happens in a week, three days, a day, ... an hour) whose
    idle node time is the median of all such parts, one after the other; all of a short log.
    """
    for length_s in [HOUR_S * hours] if hours else [HOUR_S * each for each in _SAMPLE_HOURS]:
        count = max(1, int((to_s - from_s) / length_s))
        columns = Columns(from_s, min(length_s, to_s - from_s), count)
        idle_s = idle_seconds(holes, columns)[0]
        middle = int(np.argsort(idle_s, kind="stable")[(count - 1) // 2])
        begin_s = from_s + middle * columns.width_s
        end_s = begin_s + columns.width_s
        part = between(holes, begin_s, end_s)
        if len(np.union1d(part.start_s, part.end_s)) <= _MOMENTS:
            break
    return Sample(
        trace_of_holes(part, end_s),
        begin_s,
        end_s,
        whole=columns.width_s >= to_s - from_s,
        idle_node_hours=float(part.length_s.sum()) / HOUR_S,
    )
