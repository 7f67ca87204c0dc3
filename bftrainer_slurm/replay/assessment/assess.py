"""An assessment: the log, its figures, and what trainers would have made of its holes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo

from bftrainer_slurm.replay.assessment.harvest import (
    Harvest,
    HarvestOptions,
    Replayed,
    Sample,
    replays,
    typical_sample,
)
from bftrainer_slurm.replay.assessment.statistics import Statistics, describe
from bftrainer_slurm.replay.logs.log import Log
from bftrainer_slurm.replay.trainers import TrainerSpec


@dataclass(frozen=True, slots=True, eq=False)
class Assessment:
    """Everything that a report says. ``sample`` is None where nothing was replayed."""

    source: str  # the log's name, as its owner knows it
    log: Log
    zone: tzinfo
    statistics: Statistics
    trainers: str  # in words
    sample: Sample | None
    replayed: tuple[Replayed, ...]

    def used_share(self, replayed: Replayed) -> float:
        """Return the share of the sample's idle node time that trainers used."""
        assert self.sample is not None
        return replayed.result.used_node_hours / self.sample.idle_node_hours

    def equivalent_nodes(self, replayed: Replayed) -> float:
        """Return how many dedicated nodes train as much as the holes of the whole log would.

        U of the replayed sample times the nodes that were idle on average.
        """
        return replayed.result.efficiency * self.statistics.mean_idle_nodes


@dataclass(frozen=True, slots=True)
class Replays:
    """Which replays an assessment makes, and how; ``hours`` None: a typical sample."""

    harvest: Harvest
    trainers: tuple[TrainerSpec, ...]
    described: str  # the trainers, in words
    planned: tuple[HarvestOptions, ...]
    hours: float | None = None


def assess(
    source: str,
    log: Log,
    zone: tzinfo,
    wanted: Replays | None,
    advance: Callable[[int], None] = lambda _: None,
) -> Assessment:
    """Assess a log; ``advance`` is told after each replay. A log without a hole is not replayed."""
    statistics = describe(log, zone)
    if wanted is None or not statistics.holes:
        return Assessment(source, log, zone, statistics, "", None, ())
    sample = typical_sample(log.holes, log.from_s, log.to_s, wanted.hours)
    if not sample.idle_node_hours:
        return Assessment(source, log, zone, statistics, "", None, ())
    done = []
    for one in replays(sample, wanted.trainers, wanted.planned, wanted.harvest):
        done.append(one)
        advance(1)
    return Assessment(source, log, zone, statistics, wanted.described, sample, tuple(done))
