"""An assessment: the log, its figures, how trainers use its holes, and how jobs are delayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from itertools import chain, product

from bftrainer_slurm.planner.problem import PlanMaker
from bftrainer_slurm.replay.assessment.harvest import (
    SAMPLES,
    Harvest,
    HarvestOptions,
    Replayed,
    Sample,
    samples_of,
)
from bftrainer_slurm.replay.assessment.parts import Compared, FreeHours, compare, free_hours, within
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

    ``equivalent_nodes`` are of the whole log: U times the nodes idle on average. ``felt`` is None
    if the log has no times of submission, or no job started meanwhile.
    """

    options: HarvestOptions
    used_share: Range
    efficiency: Range
    equivalent_nodes: Range
    felt: JobDelays | None


@dataclass(frozen=True, slots=True)
class Worth:
    """What trainers use of the whole log, in money and energy; None if no price is given.

    ``gpu_hours`` are None if the log does not tell which nodes have GPUs. The log is ``years``
    long: a year like it would have 1 / ``years`` times as much.
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
    compared: Compared | None = None  # trainers on whole nodes, and on parts of them
    name: str = "this cluster"  # or of the centre, for the report's title
    stopped: str = ""  # what Ctrl-C has left out, a sentence

    @property
    def summaries(self) -> tuple[Summary, ...]:
        """Return a summary of the samples for each number of trainers at once."""
        options = dict.fromkeys(one.options for one in self.replayed)
        return tuple(self._summary(one) for one in options)

    @property
    def caveats(self) -> tuple[str, ...]:
        """What the log cannot say, and what was left out; a sentence each."""
        return (*self.log.caveats, self.stopped) if self.stopped else self.log.caveats

    @property
    def free_gpus(self) -> FreeHours | None:
        """The GPU-hours that no ordinary job had, if the log tells which nodes have GPUs."""
        return None if self.log.free_gpus is None else free_hours(self.log.free_gpus)

    def worth(self, summary: Summary) -> Worth:
        """Return what trainers use of the whole log, as far as the samples tell."""
        rates = self.rates
        hours = summary.used_share.mean * self.statistics.idle_node_hours
        return Worth(
            hours,
            None if (gpus := self._gpu_hours()) is None else summary.used_share.mean * gpus,
            None if rates.price is None else hours * rates.price,
            None if rates.watts is None else hours * rates.watts / 1e6,
            self.statistics.hours / _YEAR_HOURS,
        )

    def _gpu_hours(self) -> float | None:
        """Return how long GPUs of idle nodes were idle."""
        hardware, holes = self.log.hardware, self.log.holes
        if hardware is None or not hardware.gpus.any():
            return None
        return float(hardware.gpus[holes.node] @ holes.length_s) / HOUR_S

    def _summary(self, options: HarvestOptions) -> Summary:
        done = [one for one in self.replayed if one.options == options]
        known = [one.result.started for one in done if one.result.started is not None]
        efficiency = _range([one.result.efficiency for one in done])
        nodes = self.statistics.mean_idle_nodes
        return Summary(
            options,
            _range([one.used_share for one in done]),
            efficiency,
            Range(nodes * efficiency.least, nodes * efficiency.mean, nodes * efficiency.most),
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
    element_gpus: tuple[tuple[int, ...], ...] = ()  # to replay parts of nodes too: of each in turn
    planner: PlanMaker | None = None  # for that

    @property
    def in_parts(self) -> int:
        """How many times the samples are replayed for that."""
        return 2 if self.element_gpus else 0


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
    if wanted is None or not statistics.holes:
        return Assessment(source, log, zone, statistics, reasons, "", (), ())
    samples = samples_of(log, wanted.hours, wanted.samples)
    done: list[Replayed] = []
    compared, stopped = None, ""
    planned = len(wanted.planned) * len(samples)
    total = planned + wanted.in_parts * len(samples)
    try:
        for one in _replay(samples, wanted, lambda finished: advance(finished / total)):
            done.append(one)
        compared = _compare(
            log, samples, wanted, lambda finished: advance((planned + finished) / total)
        )
    except KeyboardInterrupt:
        stopped = _stopped(len(done), planned)
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
        compared=compared,
        stopped=stopped,
    )


def _replay(
    samples: Sequence[Sample], wanted: Replays, advance: Callable[[float], None]
) -> Iterator[Replayed]:
    """Replay all samples with each number of trainers."""
    for number, (options, sample) in enumerate(product(wanted.planned, samples)):
        waiting = tuple(replace(one, submit_s=sample.from_s) for one in wanted.trainers)
        reached = within(sample.from_s, sample.to_s, number, advance)
        yield Replayed(sample, options, wanted.harvest(sample, waiting, options, reached))
        advance(number + 1)


def _compare(
    log: Log, samples: Sequence[Sample], wanted: Replays, advance: Callable[[float], None]
) -> Compared | None:
    """Replay them on parts of nodes too, if that is wanted."""
    if not wanted.element_gpus or wanted.planner is None or log.free_gpus is None:
        return None
    at_once = max(one.at_once for one in wanted.planned)
    backfill_s = wanted.planned[0].backfill_s
    trainers, sizes, planner = wanted.trainers[:at_once], wanted.element_gpus, wanted.planner
    spans = [(one.from_s, one.to_s) for one in samples]
    return compare(log.free_gpus, spans, trainers, sizes, planner, backfill_s, advance)


def _stopped(done: int, planned: int) -> str:
    if done < planned:
        return f"Ctrl-C: {done} of {counted(planned, 'sample')} were finished, and count here."
    return f"Ctrl-C: all {counted(planned, 'sample')} were finished, but not the parts of nodes."
