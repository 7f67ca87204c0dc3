"""An assessment: the log, its figures, how trainers use its holes, and how jobs are delayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from itertools import chain, product

from bftrainer_slurm.replay.assessment.harvest import (
    SAMPLES,
    Harvest,
    HarvestOptions,
    Reached,
    Replayed,
    Sample,
    samples_of,
)
from bftrainer_slurm.replay.assessment.reasons import Reasons, reasons_of
from bftrainer_slurm.replay.assessment.statistics import JobDelays, Statistics, describe, job_delays
from bftrainer_slurm.replay.assessment.words import WEEKDAYS
from bftrainer_slurm.replay.logs.log import Log
from bftrainer_slurm.replay.trace import HOUR_S
from bftrainer_slurm.replay.trainers import TrainerSpec
from bftrainer_slurm.words import counted

_YEAR_HOURS = 8766.0


@dataclass(frozen=True, slots=True)
class Range:
    """The least, the mean and the most of a figure over the samples."""

    least: float
    mean: float
    most: float


@dataclass(frozen=True, slots=True)
class Summary:
    """All samples together: what trainers used, how well, and how ordinary jobs were delayed.

    ``dedicated`` are nodes (or GPUs) for the whole log: U times those idle on average. ``felt`` is
    None if the log has no times of submission, or no job started meanwhile.
    """

    options: HarvestOptions
    used_share: Range
    efficiency: Range
    dedicated: Range
    felt: JobDelays | None


@dataclass(frozen=True, slots=True)
class Worth:
    """What trainers use of the whole log, in money and energy; None if no price is given.

    Where GPUs are replayed, ``used_node_hours`` counts each as its share of a node. ``gpu_hours``
    are None if the log does not tell which nodes have GPUs. The log is ``years`` long: a year like
    it would have 1 / ``years`` times as much.
    """

    used_node_hours: float
    gpu_hours: float | None
    money: float | None
    megawatt_hours: float | None
    years: float


@dataclass(frozen=True, slots=True)
class Rates:
    """What a node-hour costs, and how many watts more a training node draws than an idle one."""

    price: float | None = None
    currency: str = ""
    watts: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Assessment:
    """Everything in a report. Without samples nothing was replayed."""

    source: str  # the log's name, as its owner knows it
    log: Log
    zone: tzinfo
    statistics: Statistics
    reasons: Reasons | None
    trainers: str  # in words
    samples: tuple[Sample, ...]
    replayed: tuple[Replayed, ...]
    rates: Rates = field(default_factory=Rates)
    name: str = "this cluster"  # or of the centre, for the report's title
    stopped: str = ""  # what Ctrl-C has left out, a sentence

    @property
    def _counted(self) -> Log:
        return self.log.in_gpus or self.log

    @property
    def unit(self) -> str:
        """What is counted and replayed: GPU, where most nodes have some, or node."""
        return "node" if self.log.in_gpus is None else "GPU"

    @property
    def machine(self) -> int:
        """How many nodes (or GPUs) there are."""
        return self._counted.nodes

    @property
    def idle_hours(self) -> float:
        """How many node-hours (or GPU-hours) no job had."""
        return float(self._counted.holes.length_s.sum()) / HOUR_S

    @property
    def idle_share(self) -> float:
        """Their share of all."""
        return self.idle_hours / (self.statistics.hours * self.machine)

    @property
    def mean_idle(self) -> float:
        """How many nodes (or GPUs) were idle on average."""
        return self.idle_hours / self.statistics.hours

    @property
    def summaries(self) -> tuple[Summary, ...]:
        """Return a summary of the samples for each number of trainers at once."""
        options = dict.fromkeys(one.options for one in self.replayed)
        return tuple(self._summary(one) for one in options)

    @property
    def caveats(self) -> tuple[str, ...]:
        """What the log cannot say, and what was left out; a sentence each."""
        return (*self.log.caveats, self.stopped) if self.stopped else self.log.caveats

    def worth(self, summary: Summary) -> Worth:
        """Return what trainers use of the whole log, as far as the samples tell."""
        rates, share = self.rates, summary.used_share.mean
        hours, gpu_hours = share * self.statistics.idle_node_hours, self._gpu_hours()
        if self.log.in_gpus is not None and self.log.gpus is not None:
            gpu_hours = self.idle_hours
            hours = share * gpu_hours / float(self.log.gpus[self.log.gpus > 0].mean())
        return Worth(
            hours,
            None if gpu_hours is None else share * gpu_hours,
            None if rates.price is None else hours * rates.price,
            None if rates.watts is None else hours * rates.watts / 1e6,
            self.statistics.hours / _YEAR_HOURS,
        )

    def _gpu_hours(self) -> float | None:
        """Return how long GPUs of idle nodes were idle."""
        gpus, holes = self.log.gpus, self.log.holes
        if gpus is None or not gpus.any():
            return None
        return float(gpus[holes.node] @ holes.length_s) / HOUR_S

    def _summary(self, options: HarvestOptions) -> Summary:
        done = [one for one in self.replayed if one.options == options]
        known = [one.result.started for one in done if one.result.started is not None]
        efficiency = _range([one.result.efficiency for one in done])
        idle = self.mean_idle
        return Summary(
            options,
            _range([one.used_share for one in done]),
            efficiency,
            Range(idle * efficiency.least, idle * efficiency.mean, idle * efficiency.most),
            job_delays(list(chain.from_iterable(known))),
        )


def _range(values: Sequence[float]) -> Range:
    return Range(min(values), sum(values) / len(values), max(values))


@dataclass(frozen=True, slots=True)
class Replays:
    """Which replays an assessment makes, and how; ``hours`` is None to choose the length itself."""

    harvest: Harvest
    trainers: tuple[TrainerSpec, ...]
    described: str  # the trainers, in words
    planned: tuple[HarvestOptions, ...]
    hours: float | None = None
    samples: int = SAMPLES


def assess(
    source: str,
    log: Log,
    zone: tzinfo,
    wanted: Replays | None,
    advance: Callable[[float], None] = lambda share: None,
) -> Assessment:
    """Assess a log; a log without a hole is not replayed.

    Calls ``advance`` with the share of all replays that is done, 0 to 1. Ctrl-C
    (KeyboardInterrupt) ends the replays; the assessment is then of those that were finished.
    """
    statistics = describe(log, zone)
    reasons = reasons_of(log, zone, WEEKDAYS)
    if wanted is None or not len((log.in_gpus or log).holes.node):
        return Assessment(source, log, zone, statistics, reasons, "", (), ())
    samples = samples_of(log.in_gpus or log, wanted.hours, wanted.samples)
    done: list[Replayed] = []
    stopped, planned = "", len(wanted.planned) * len(samples)
    try:
        for one in _replay(samples, wanted, lambda finished: advance(finished / planned)):
            done.append(one)
    except KeyboardInterrupt:
        of = counted(planned, "sample")
        stopped = f"Ctrl-C: {len(done)} of {of} were finished, and count here."
        samples = samples[: len(done)]
    return Assessment(
        source,
        log,
        zone,
        statistics,
        reasons,
        wanted.described,
        tuple(samples),
        tuple(done),
        stopped=stopped,
    )


def _replay(
    samples: Sequence[Sample], wanted: Replays, advance: Callable[[float], None]
) -> Iterator[Replayed]:
    """Replay all samples with each number of trainers."""
    for number, (options, sample) in enumerate(product(wanted.planned, samples)):
        waiting = tuple(replace(one, submit_s=sample.from_s) for one in wanted.trainers)
        reached = _within(sample, number, advance)
        yield Replayed(sample, options, wanted.harvest(sample, waiting, options, reached))
        advance(number + 1)


def _within(sample: Sample, done: int, advance: Callable[[float], None]) -> Reached:
    """Return what tells ``advance``, at a moment of a replay, how many are done: 2.5, say."""
    return lambda now_s: advance(done + (now_s - sample.from_s) / (sample.to_s - sample.from_s))
