"""How trainers would have used the holes: which parts of a log are replayed, and the results.

The caller passes the replay itself, so that nothing here knows the controller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bftrainer_slurm.replay.cluster import Moment
from bftrainer_slurm.replay.logs.holes import Columns, between, idle_seconds, trace_of_holes
from bftrainer_slurm.replay.logs.log import Log
from bftrainer_slurm.replay.logs.played import Play, play_of
from bftrainer_slurm.replay.playback import Started
from bftrainer_slurm.replay.trace import HOUR_S, Trace
from bftrainer_slurm.replay.trainers import TrainerSpec

SAMPLES = 5
_SAMPLE_HOURS = (12.0, 6.0, 3.0, 1.0)
_MOMENTS = 1000  # about how many moments with an event a sample may have


@dataclass(frozen=True, slots=True)
class HarvestOptions:
    """How to replay: trainers at once, and seconds from one pass of backfill to the next."""

    at_once: int
    backfill_s: float = 30.0


@dataclass(frozen=True, slots=True)
class HarvestResult:
    """The result of a replay, in nodes, or in GPUs where they stand for nodes.

    ``efficiency`` is U: samples, over those of the same trainers on as many dedicated nodes as
    were idle on average, in the same time without rescaling. ``started`` are the ordinary jobs,
    None if nothing is known about them. ``moments`` are nodes idle and used over time.
    """

    used_hours: float
    efficiency: float
    samples: float
    started: tuple[Started, ...] | None = None
    moments: tuple[Moment, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """A part of a log that is replayed; Unix seconds."""

    trace: Trace
    from_s: float
    to_s: float
    idle_hours: float  # of nodes, or of GPUs
    play: Play | None = None

    @property
    def hours(self) -> float:
        """How long it is."""
        return (self.to_s - self.from_s) / HOUR_S

    @property
    def mean_idle(self) -> float:
        """How many nodes, or GPUs, were idle on average."""
        return self.idle_hours / self.hours


Reached = Callable[[float], None]  # how far a replay is, in Unix seconds of the log
Harvest = Callable[[Sample, tuple[TrainerSpec, ...], HarvestOptions, Reached], HarvestResult]


@dataclass(frozen=True, slots=True)
class Replayed:
    """One replay of a sample."""

    sample: Sample
    options: HarvestOptions
    result: HarvestResult

    @property
    def used_share(self) -> float:
        """Return the share of the sample's idle node time that trainers used."""
        return self.result.used_hours / self.sample.idle_hours

    @property
    def dedicated(self) -> float:
        """Return how many dedicated nodes, or GPUs, train as much in this sample."""
        return self.result.efficiency * self.sample.mean_idle


def samples_of(log: Log, hours: float | None = None, most: int = SAMPLES) -> list[Sample]:
    """Return the parts of a log to replay, in the order of time.

    The log is cut into parts of 12 hours, or fewer if too much happens in them. From these it takes
    as many as wanted: those whose idle node time is at the 10th, 30th, ... 90th percentile.
    """
    for length_s in [HOUR_S * hours] if hours else [HOUR_S * each for each in _SAMPLE_HOURS]:
        width_s = min(length_s, log.to_s - log.from_s)
        columns = Columns(log.from_s, width_s, max(1, int((log.to_s - log.from_s) / length_s)))
        idle_s = idle_seconds(log.holes, columns)[0]
        order = np.argsort(idle_s, kind="stable")[idle_s[np.argsort(idle_s, kind="stable")] > 0]
        places = (np.arange(most) + 0.5) / most * len(order)
        chosen = sorted({int(order[int(place)]) for place in places} if len(order) else ())
        found = [_sample(log, columns, number) for number in chosen]
        if all(len(np.unique(one.trace.time_s)) <= _MOMENTS for one in found):
            break
    return found


def _sample(log: Log, columns: Columns, number: int) -> Sample:
    from_s = columns.from_s + number * columns.width_s
    to_s = from_s + columns.width_s
    part = between(log.holes, from_s, to_s)
    trace = trace_of_holes(part, from_s, to_s)
    idle_hours = float(part.length_s.sum()) / HOUR_S
    return Sample(trace, from_s, to_s, idle_hours, play_of(log, part, from_s, to_s))
