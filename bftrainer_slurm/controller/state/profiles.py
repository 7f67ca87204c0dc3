"""Turns trainers' reports into the estimates that plans use.

Measurements of earlier trainers with the same name count too. A curve changes only when there is
new evidence, so that noise does not cause new plans.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bftrainer_slurm.controller.observe.reports import NO_LOSS, Loss, Reform, Report, Runtime
from bftrainer_slurm.controller.state.measurements import (
    RESCALES_A_KIND,
    THROUGHPUTS_A_SIZE,
    THROUGHPUTS_AN_ARRAY,
    Job,
    Measurements,
)
from bftrainer_slurm.controller.state.stopwatch import Rescale, Stopwatch, Throughput
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.curves import Exploration, Fit, Fits, Measurement, Standing
from bftrainer_slurm.planner.curves.news import FIRST_S

_ANOTHER_SCRIPT = 0.25  # a larger relative difference shows that the name has another script now


# The prior weighs as much as two measured rescales, so that a single rescale that hung does not
# count. It weighs one more for every ten minutes without a rescale: then another try is worthwhile.
_PRIOR_WEIGHS = 2
_FADES_S = 600.0
_MOST_COST_S = 120.0  # a limit, so that nobody can keep nodes by reporting long pauses


@dataclass(frozen=True, slots=True)
class RescaleCosts:
    """How long (seconds) a trainer makes no progress after a change."""

    up_s: float  # after it grew
    down_s: float  # after it shrank
    start_s: float  # after it got its first nodes


# The costs until a trainer's own are measured. From torch 2.13 on CPUs.
PRIOR_COSTS = {
    Runtime.C10D: RescaleCosts(8.0, 7.0, start_s=8.0),
    Runtime.AGENT: RescaleCosts(0.3, 0.3, start_s=8.0),
    Runtime.WORKER: RescaleCosts(0.2, 0.2, start_s=8.0),
}


def _cost_s(prior_s: float, measured: Sequence[Rescale], now_s: float) -> float:
    """Return the cost of a rescale (seconds): the median of the measured costs and the prior."""
    if not measured:
        return prior_s
    quiet_s = max(0.0, now_s - measured[-1].time_s)
    priors = [prior_s] * (_PRIOR_WEIGHS + int(quiet_s / _FADES_S))
    return min(median([*priors, *(one.seconds for one in measured)]), _MOST_COST_S)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a plan knows about a trainer."""

    curve: ThroughputCurve  # in samples/s, or in an arbitrary unit if only the shape is known
    costs: RescaleCosts
    done: float | None = None  # the share of its samples that is done; None: unknown
    expected: ThroughputCurve | None = None  # the curve without optimism; None: does not explore
    loss_s: float = 0.0  # training time that a change of nodes loses (seconds)


@dataclass(slots=True)
class _Known:
    """What is measured of one trainer."""

    job: Job
    stopwatch: Stopwatch
    before: list[Throughput]  # of earlier trainers with this name
    rescales: list[Rescale]  # of all trainers with this name
    own: list[Throughput] = field(default_factory=list)  # its own, oldest first
    unit: str = "samples"
    last_s: float = float("-inf")  # when its last throughput ended
    fit: Fit | None = None  # of ``own`` and ``before``; None if there are new throughputs
    drawn: tuple[Fit, dict[str, Any]] | None = None  # the curve for users, and its fit
    loss: Mapping[str, Any] = field(default_factory=lambda: NO_LOSS.shown)

    def add(self, throughput: Throughput) -> None:
        """Add a throughput; drop the oldest beyond the limits of the file."""
        alike = [one for one in self.own if one.size == throughput.size]
        if len(alike) == THROUGHPUTS_A_SIZE:
            self.own.remove(alike[0])
        self.own = [*self.own[1 - THROUGHPUTS_AN_ARRAY :], throughput]
        self.unit, self.last_s, self.fit = throughput.unit, throughput.time_s, None

    def throughputs(self) -> list[Throughput]:
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
        found = defaultdict[int, list[Throughput]](list)
        for one in throughputs:
            if one.unit == self.unit:
                found[one.nodes].append(one)
        return found


class PerformanceModel:
    """Estimates what trainers (by array) can do; it learns from their reports."""

    def __init__(self, measurements: Measurements) -> None:
        self._measurements = measurements
        self._trainers: dict[int, _Known] = {}
        self._rescales: dict[Job, list[Rescale]] = {}  # oldest first; ``_Known`` shares them
        self._fits: Fits[int] = Fits()
        self._exploration: Exploration[int] = Exploration()

    def progressed(self, view: TrainerView, report: Report, loss: Loss = NO_LOSS) -> None:
        """Learn from a report of progress."""
        known = self._trainer(view)
        known.loss = loss.shown
        nodes, each = len(view.placed), view.size_of_node
        if not each:
            return  # all its elements have left since
        throughputs, rescales = known.stopwatch.report(report, nodes, each)
        for throughput in throughputs:
            if throughput.time_s <= known.last_s:
                continue  # the keeper repeats old notes after a restart of the controller
            known.add(throughput)
            self._measurements.add_throughput(known.job, throughput)
        for rescale in rescales:
            before = known.rescales
            if not before or rescale.time_s > before[-1].time_s:
                alike = [one for one in before if one.kind == rescale.kind]
                if len(alike) == RESCALES_A_KIND:
                    before.remove(alike[0])
                before.append(rescale)
                self._measurements.add_rescale(known.job, rescale)

    def reformed(self, view: TrainerView, reform: Reform) -> None:
        """Record that a trainer has formed a new generation."""
        if self._trainer(view).stopwatch.reformed(reform):
            self._measurements.set_reform(view.array, reform)

    def costs(self, view: TrainerView, now_s: float) -> RescaleCosts:
        """Return the costs of rescaling: medians of the recent measured costs and the prior."""
        known = self._trainer(view)
        prior = PRIOR_COSTS[self._runtime(known)]
        up_s = _cost_s(prior.up_s, self._costs(known, grew=True), now_s)
        down_s = _cost_s(prior.down_s, self._costs(known, grew=False), now_s)
        return RescaleCosts(up_s, down_s, prior.start_s)

    def estimates(self, views: Sequence[TrainerView], now_s: float) -> list[Estimate]:
        """Return an estimate for each view, in their order."""
        standings = {
            view.array: Standing(
                self._fit(view.array, known),
                len(view.placed) * view.size_of_node,
                _most(view),
                in_samples=known.unit == "samples",
            )
            for view, known in ((view, self._trainer(view)) for view in views)
        }
        curves = self._exploration.curves(standings, now_s)
        expected = self._exploration.expected
        return [
            Estimate(
                *(curves[view.array], self.costs(view, now_s)),
                expected=expected[view.array],
                loss_s=self._trainer(view).loss["seconds"],
            )
            for view in views
        ]

    def joined(self, view: TrainerView) -> bool:
        """Return whether a trainer's elements have ever formed a group through the keeper."""
        return self._trainer(view).stopwatch.formed is not None

    def known(self, view: TrainerView, now_s: float) -> dict[str, Any]:
        """Return curve, costs, loss and runtime, for users."""
        known = self._trainer(view)
        runtime = known.stopwatch.runtime
        costs = self.costs(view, now_s)
        return {
            "runtime": runtime.value if runtime else None,
            "curve": self._curve(view, known),
            "rescale": {
                name: {"seconds": seconds, "count": len(self._costs(known, grew))}
                for name, seconds, grew in (("up", costs.up_s, True), ("down", costs.down_s, False))
            },
            "loss": known.loss,
        }

    def forget(self, keep: frozenset[int]) -> None:
        """Drop all trainers but ``keep``; their throughputs stay in the history."""
        gone = self._trainers.keys() - keep
        for array in gone:
            del self._trainers[array]
        self._fits.forget(keep)
        if gone:  # drop names too: a user may have had any number of them
            jobs = {known.job for known in self._trainers.values()}
            self._rescales = {job: own for job, own in self._rescales.items() if job in jobs}

    def _trainer(self, view: TrainerView) -> _Known:
        known = self._trainers.get(view.array)
        if known is None:
            # A curve over nodes says nothing about a curve over GPUs.
            by = " by GPUs" if view.trainer.record.gpus else ""
            job = Job(view.trainer.user, f"{view.trainer.name}{by}")
            throughputs = self._measurements.throughputs(job)
            before = [throughput for throughput in throughputs if throughput.array != view.array]
            if job not in self._rescales:
                self._rescales[job] = self._measurements.rescales(job)
            stopwatch = Stopwatch(view.array, self._measurements.reform(view.array))
            known = _Known(job, stopwatch, before, self._rescales[job])
            for throughput in throughputs:
                known.unit = throughput.unit
                if throughput.array == view.array:
                    known.add(throughput)
            self._trainers[view.array] = known
        return known

    def _fit(self, array: int, known: _Known) -> Fit:
        if known.fit is None:
            known.fit = self._fits.update(
                array,
                [Measurement(one.nodes, one.rate, one.seconds) for one in known.throughputs()],
            )
        return known.fit

    def _costs(self, known: _Known, grew: bool) -> Sequence[Rescale]:
        kind = self._runtime(known), grew
        return [one for one in known.rescales if one.kind == kind]

    def _runtime(self, known: _Known) -> Runtime:
        """Return its runtime; before its first report, that of the last trainer of its name."""
        before = known.rescales
        return known.stopwatch.runtime or (before[-1].runtime if before else Runtime.C10D)

    def _curve(self, view: TrainerView, known: _Known) -> dict[str, Any]:
        fit = self._fit(view.array, known)
        if known.drawn is not None and known.drawn[0] is fit:
            return known.drawn[1]
        curve = fit.curve(_most(view))
        drawn = {
            "unit": None if fit.unit is None else known.unit,
            "over": "GPUs" if view.choices else "nodes",
            "points": [
                {"nodes": nodes, "rate": value, "measured": fit.has_measured(nodes)}
                for nodes, value in zip(curve.nodes[1:], curve.values[1:], strict=True)
            ],
        }
        known.drawn = fit, drawn
        return drawn


def _most(view: TrainerView) -> int:
    """Return the end of a trainer's curve: in nodes, or in GPUs if the plan chooses them."""
    return view.trainer.record.max_nodes * max(view.choices, default=1)


def _differ(throughputs: Iterable[Throughput], others: Iterable[Throughput]) -> bool:
    """Whether these throughputs at one size cannot come from the same script."""
    ratio = median(one.rate for one in throughputs) / median(one.rate for one in others)
    return abs(math.log(ratio)) > _ANOTHER_SCRIPT
