"""What trainers' members have reported, and the estimates that plans make of it.

Measurements of earlier trainers with the same name count too. A curve changes only when there is
new evidence, so that noise does not cause new plans.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TypeVar

from bftrainer_slurm.controller.observe.reports import NO_LOSS, Progress, Report, Work
from bftrainer_slurm.controller.state.failing import Failing
from bftrainer_slurm.controller.state.measurements import (
    RESCALES_A_KIND,
    Job,
    Measurements,
)
from bftrainer_slurm.controller.state.stopwatch import Rescale, Stopwatch, Throughput
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import ThroughputCurve, Trainer
from bftrainer_slurm.planner.curves import Exploration, Fit, LatestFit, Measurement, Standing
from bftrainer_slurm.planner.curves.news import FIRST_S

_OF_A_SIZE, _OF_A_TRAINER = 16, 256  # so many throughputs count, the newest ones
_ANOTHER_SCRIPT = 0.25  # a larger relative difference shows that the name has another script now
_NO_LOSS = NO_LOSS.shown
One = TypeVar("One", Throughput, Rescale)

_FIXED = 1.2  # a batch that grows by less from the fewest to the most nodes does not grow with them

# The prior weighs as much as two measured rescales, so that a single rescale that hung does not
# count. It weighs one more for every ten minutes without a rescale: then another try is worthwhile.
_PRIOR_WEIGHS = 2
_FADES_S = 600.0
_LAST_S = 10.0  # a group that has not reported for this long is over
_MOST_COST_S = 120.0  # a limit, so that nobody can keep nodes by reporting long pauses


@dataclass(frozen=True, slots=True)
class RescaleCosts:
    """How long (seconds) a trainer makes no progress after a change."""

    up_s: float  # after it grew
    down_s: float  # after it shrank
    start_s: float  # after it got its first nodes


# The costs until a trainer's own are measured. From torch 2.13 on CPUs.
PRIOR_COSTS = RescaleCosts(0.3, 0.3, start_s=8.0)


def _cost_s(prior_s: float, measured: Sequence[Rescale], now_s: float) -> float:
    """Return the cost of a rescale (seconds): the median of the measured costs and the prior."""
    if not measured:
        return prior_s
    quiet_s = max(0.0, now_s - measured[-1].time_s)
    priors = [prior_s] * (_PRIOR_WEIGHS + int(quiet_s / _FADES_S))
    return min(median([*priors, *(one.seconds for one in measured)]), _MOST_COST_S)


@dataclass(frozen=True, slots=True)
class BatchNoise:
    """A trainer's gradient noise scale, and one node's samples in a step.

    These are 0 if all nodes together have the same number of samples, however many nodes there are.
    """

    samples: float
    node_batch: float
    given: bool  # by the user; else it was measured

    @property
    def batches(self) -> float:
        """The noise scale in batches of one node; infinite if more nodes make no larger batch."""
        return self.samples / self.node_batch if self.node_batch else math.inf


@dataclass(slots=True)
class ReportedGroup:
    """The largest group that a trainer's members report. Times are Unix seconds.

    If nodes train separately, there are other groups too.
    """

    nodes: int = 0  # nodes in the group; 0: no report yet
    fell_s: float = -math.inf  # when the group last became smaller
    progressed_s: float = -math.inf  # when the group last reported progress
    waits: bool = False  # for the script, which runs in one element, until it trains
    script_s: float = -math.inf  # when this last changed

    def formed(self, nodes: int, time_s: float) -> None:
        """Record that the keeper has formed a group of this number of nodes."""
        if nodes < self.nodes:
            self.fell_s = time_s
        self.nodes = nodes

    def progressed(self, nodes: int, time_s: float) -> None:
        """Record a report from a group of this number of nodes; there may be several groups."""
        if nodes >= self.nodes or time_s - self.progressed_s >= _LAST_S:
            self.formed(nodes, time_s)
            self.progressed_s = time_s


@dataclass(slots=True)
class ReportedState:
    """What one trainer's members have reported. Times are Unix seconds."""

    job: Job
    progress: Progress
    work: Work | None  # the sum of all reports; None if there were none
    stopwatch: Stopwatch
    own: list[Throughput]  # its own throughputs, oldest first
    before: Sequence[Throughput]  # of earlier trainers with this name
    rescales: list[Rescale]  # oldest first; also of earlier trainers with this name
    trained: bool  # whether it has ever trained for a while
    began_s: float | None = None  # when it last formed a group, or failed
    saved_s: float = -math.inf  # when the history was last updated
    launcher: str = ""  # the program that started it; empty if it is not known
    group: ReportedGroup = field(default_factory=ReportedGroup)
    _made_before: float = 0.0  # steps, when this attempt began
    _to_beat: tuple[float, float] = (-1.0, -1.0)  # all steps at the last failure, an attempt's most
    _fit: Fit | None = None  # None if there are new throughputs
    _latest: LatestFit = field(default_factory=LatestFit)

    @property
    def loss(self) -> Mapping[str, Any]:
        """What a restart would lose, as users see it; before the first report it is nothing."""
        return _NO_LOSS if self.work is None else self.work.loss.shown

    @property
    def unit(self) -> str:
        """The unit of its throughputs: "samples" or "steps"."""
        return next((known[-1].unit for known in (self.own, self.before) if known), "samples")

    @property
    def fit(self) -> Fit:
        """The fit of its throughput curve."""
        if self._fit is None:
            found = (Measurement(one.nodes, one.rate, one.seconds) for one in self._throughputs())
            self._fit = self._latest.update(found)
        return self._fit

    @property
    def samples_so_far(self) -> float | None:
        """Samples trained so far; None: unknown, or its samples/s are not."""
        known = self.unit == "samples" and self.fit.unit is not None
        return self.progress.samples if known else None

    def noise(self, given: float | None) -> BatchNoise | None:
        """Return its noise scale, ``given`` or the newest that was measured; None: not known.

        Nor is it of use if nothing tells how many samples a step has.
        """
        known = [*self.before, *self.own]
        measured = next((one.noise for one in reversed(known) if one.noise), None)
        samples = measured if given is None else given
        batches = _batches(self.own) or _batches(self.before)
        if samples is None or not batches:
            return None
        least, most = min(batches), max(batches)
        grows = least == most or batches[most] > _FIXED * batches[least]
        return BatchNoise(samples, batches[most] / most if grows else 0.0, given is not None)

    def costs(self, grew: bool) -> Sequence[Rescale]:
        """Return the measured rescales, up or down."""
        return [one for one in self.rescales if one.grew == grew]

    def begins(self, failing: Failing | None, now_s: float) -> None:
        """A generation begins: after failures it has to come further than those that failed."""
        made = self.progress.made
        if failing is not None and failing.last_s >= (self.began_s or -math.inf):
            before = self._to_beat[1] if failing.count > 1 else 0.0
            self._to_beat = made, max(made - self._made_before, before)
        self._made_before, self.began_s = made, now_s

    def is_beyond(self, report: Report) -> bool:
        """Whether training is beyond where it failed last.

        Steps that are trained again are not reported, unless the script has begun at step 0 again.
        """
        made, (all_steps, own) = self.progress.made, self._to_beat
        return made - self._made_before > own if report.from_start else made > all_steps

    def add(self, throughput: Throughput) -> list[Throughput]:
        """Add a throughput; return all own ones of its size, none if it is known already.

        The keeper repeats old notes after a restart of the controller.
        """
        if self.own and throughput.time_s <= self.own[-1].time_s:
            return []
        _add_bounded(self.own, throughput, _OF_A_SIZE)
        del self.own[:-_OF_A_TRAINER]
        self._fit = None
        return [one for one in self.own if one.kind == throughput.kind]

    def add_rescale(self, rescale: Rescale) -> bool:
        """Add the cost of a rescale; return False if it is known already."""
        if self.rescales and rescale.time_s <= self.rescales[-1].time_s:
            return False
        _add_bounded(self.rescales, rescale, RESCALES_A_KIND)
        return True

    def _throughputs(self) -> list[Throughput]:
        """Return its own throughputs, and its namesakes' on sizes that it has not tried.

        The namesakes' do not count if they differ from its own on a size that both have tried.
        """
        own, others = self._by_nodes(self.own), self._by_nodes(self.before)
        own = {n: all_ for n, all_ in own.items() if sum(one.seconds for one in all_) >= FIRST_S}
        known = [throughput for throughputs in own.values() for throughput in throughputs]
        if any(_differ(own[size], others[size]) for size in own.keys() & others.keys()):
            return known
        return known + [one for size in others.keys() - own.keys() for one in others[size]]

    def _by_nodes(self, throughputs: Iterable[Throughput]) -> dict[int, list[Throughput]]:
        found, unit = defaultdict[int, list[Throughput]](list), self.unit
        for one in throughputs:
            if one.unit == unit:
                found[one.nodes].append(one)
        return found


def _add_bounded(known: list[One], new: One, most: int) -> None:
    """Add a measurement; of its kind only the ``most`` newest stay."""
    alike = [one for one in known if one.kind == new.kind]
    if len(alike) >= most:
        known.remove(alike[0])
    known.append(new)


def _differ(throughputs: Iterable[Throughput], others: Iterable[Throughput]) -> bool:
    """Whether these throughputs at one size cannot come from the same script."""
    ratio = median(one.rate for one in throughputs) / median(one.rate for one in others)
    return abs(math.log(ratio)) > _ANOTHER_SCRIPT


def _in_batches(noise: BatchNoise | None) -> float:
    return math.inf if noise is None else noise.batches


def _batches(throughputs: Iterable[Throughput]) -> dict[int, float]:
    """Return the samples of a step by the number of nodes, as far as they are known."""
    found = defaultdict[int, list[float]](list)
    for one in throughputs:
        if one.batch is not None:
            found[one.nodes].append(one.batch)
    return {nodes: median(batches) for nodes, batches in found.items()}


def reported_before(measured: Measurements, trainer: Trainer) -> ReportedState:
    """Return what the history file knows about a trainer's reports, and about its name."""
    array = trainer.array
    job = Job(trainer.user, trainer.name)
    samples, saved_s = measured.samples(array) or (None, -math.inf)
    throughputs = measured.throughputs(job)
    work = measured.work(array)
    return ReportedState(
        job,
        Progress(samples, saved_s),
        work,
        Stopwatch(array),
        [one for one in throughputs if one.array == array],
        [one for one in throughputs if one.array != array],
        measured.rescales(job),
        work is not None and work.trained_s + work.again_s > 0,
        saved_s=saved_s,
    )


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a plan knows about a trainer."""

    curve: ThroughputCurve  # in samples/s, or in an arbitrary unit if only the shape is known
    costs: RescaleCosts
    done: float | None = None  # the share of its samples that is done; None: unknown
    expected: ThroughputCurve | None = None  # the curve without optimism; None: does not explore
    loss_s: float = 0.0  # training time that a change of nodes loses (seconds)
    samples: float | None = None  # trained so far; None: unknown, or ``curve`` is no samples/s
    measured: bool = True  # False: it is new, and ``curve`` is a guess
    noise: float = math.inf  # the gradient noise scale in batches of one node; infinite: not known


class PerformanceModel:
    """Estimates what trainers can do, from what their members have ``reported``."""

    def __init__(self, reported: Callable[[Trainer], ReportedState]) -> None:
        self._reported = reported
        self._exploration = Exploration()

    def costs(self, view: TrainerView, now_s: float) -> RescaleCosts:
        """Return the costs of rescaling: medians of the recent measured costs and the prior."""
        reported = self._reported(view.trainer)
        up_s = _cost_s(PRIOR_COSTS.up_s, reported.costs(grew=True), now_s)
        down_s = _cost_s(PRIOR_COSTS.down_s, reported.costs(grew=False), now_s)
        return RescaleCosts(up_s, down_s, PRIOR_COSTS.start_s)

    def estimates(self, views: Sequence[TrainerView], now_s: float) -> list[Estimate]:
        """Return an estimate for each view, in their order."""
        known = {view.array: self._reported(view.trainer) for view in views}
        standings = {
            view.array: Standing(
                known[view.array].fit,
                len(view.placed),
                view.trainer.record.max_nodes,
                in_samples=known[view.array].unit == "samples",
            )
            for view in views
        }
        curves = self._exploration.curves(standings, now_s)
        expected = self._exploration.expected
        return [
            Estimate(
                *(curves[view.array], self.costs(view, now_s)),
                samples=known[view.array].samples_so_far,
                measured=known[view.array].fit.unit is not None,
                expected=expected[view.array],
                loss_s=known[view.array].loss["seconds"],
                noise=_in_batches(known[view.array].noise(view.trainer.record.spec.noise)),
            )
            for view in views
        ]

    def joined(self, view: TrainerView) -> bool:
        """Return whether a trainer's elements have ever formed a group through the keeper."""
        return view.state.engaged.generation > 0
