"""How much plans lose because curves are not known: trainers on a pool that comes and goes.

They are planned again and again, and measured, noisily, on what each plan gave them.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bftrainer_slurm.controller.observe.reports import Report
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.measurements import Measurements
from bftrainer_slurm.controller.state.member_notes import measure
from bftrainer_slurm.controller.state.profiles import (
    PerformanceModel,
    ReportedState,
    reported_before,
)
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import ElementId, Place, ThroughputCurve, Trainer
from bftrainer_slurm.planner.curves import Measurement, Standing, fit, planning_curves
from bftrainer_slurm.planner.objectives import Facts, find
from bftrainer_slurm.planner.problem import Plan, PlannedTrainer, Problem, stops_a_trainer, value
from bftrainer_slurm.spec import TrainerRecord

SIZES = (0, 1, 2, 4, 8, 16, 32, 64)
MOST = SIZES[-1]
LEAST_POOL, MOST_POOL = 20, 200
FORWARD_S, UP_S, DOWN_S = 120.0, 18.0, 12.0  # the rescale costs of the paper's data
_objective = find("speedup")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Between two changes of the pool: how many nodes it has, and for how long (seconds)."""

    nodes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """One plan: its worth under the true curves, the best plan's, and rescales until then."""

    reached: float
    possible: float
    rescales: float  # a trainer, on average


@dataclass(slots=True)
class Learner:
    """A trainer: its true curve, its nodes, and what was measured of it.

    ``generations`` holds (number of rescales, measurements) for each stretch that it trained.
    """

    true: ThroughputCurve
    held: frozenset[str] = frozenset()
    rescales: int = 0
    generations: list[tuple[int, list[Measurement]]] = field(default_factory=list)

    @property
    def measurements(self) -> list[Measurement]:
        """All of them."""
        return [look for _, looks in self.generations for look in looks]


@dataclass(frozen=True, slots=True)
class Curves:
    """What to plan with, and what where exploring would stop a trainer (None: nobody explores)."""

    curves: list[ThroughputCurve]
    expected: list[ThroughputCurve] | None = None


Planning = Callable[[Problem], Plan]
Method = Callable[[Sequence[Learner]], Curves]


def known(learners: Sequence[Learner]) -> Curves:
    """Plan with the true curves."""
    return Curves([one.true for one in learners])


def prior_only(learners: Sequence[Learner]) -> Curves:
    """Plan as if nothing had been measured."""
    return Curves([fit([]).curve(MOST) for _ in learners])


def fitted(learners: Sequence[Learner]) -> Curves:
    """Plan with what was measured."""
    return Curves([fit(one.measurements).curve(MOST) for one in learners])


def exploring(learners: Sequence[Learner]) -> Curves:
    """Plan with what was measured, and explore."""
    standings = [Standing(fit(one.measurements), len(one.held), MOST) for one in learners]
    return Curves(planning_curves(standings), planning_curves(standings, exploring=False))


class Controller:
    """Plan as the controller does: it is told once a second how many samples a trainer has."""

    def __init__(self) -> None:
        self._measured = Measurements(History(":memory:"))
        self._reported: dict[int, ReportedState] = {}
        self._profiles = PerformanceModel(lambda trainer: self._reported[trainer.array])
        self._told: dict[int, int] = {}  # stretches, by trainer
        self._time_s: dict[int, float] = {}
        self._samples: dict[int, float] = {}

    def __call__(self, learners: Sequence[Learner]) -> Curves:
        """Report what has happened since, and plan with what was learnt from it."""
        for key, one in enumerate(learners):
            if key not in self._reported:
                trainer = _view(key, 0).trainer
                self._reported[key] = reported_before(self._measured, trainer)
            for rescales, looks in one.generations[self._told.get(key, 0) :]:
                self._report(key, rescales, looks)
            self._told[key] = len(one.generations)
        views = [_view(key, len(one.held)) for key, one in enumerate(learners)]
        now_s = max(self._time_s.values(), default=0.0)
        estimates = self._profiles.estimates(views, now_s)
        return Curves(
            [one.curve for one in estimates], [one.expected or one.curve for one in estimates]
        )

    def _report(self, key: int, rescales: int, looks: list[Measurement]) -> None:
        view = _view(key, looks[0].nodes)
        reported = self._reported[key]
        time_s, samples = self._time_s.get(key, 0.0), self._samples.get(key, 0.0)
        for look in looks:
            for _ in range(int(look.seconds)):
                time_s, samples = time_s + 1, samples + look.samples_per_s
                said = Report(time_s, samples=samples, nodes=look.nodes, generation=rescales)
                measure(self._measured, view, reported, said)
        self._time_s[key], self._samples[key] = time_s, samples


# Each makes what plans one run.
METHODS: dict[str, Callable[[], Method]] = {
    "prior only": lambda: prior_only,
    "fit": lambda: fitted,
    "fit, exploring": lambda: exploring,
    "controller": Controller,
}


def run(
    planning: Planning,
    method: Method,
    curves: Sequence[ThroughputCurve],
    stretches: Sequence[Stretch],
    seed: int,
) -> list[Outcome]:
    """Plan once for each stretch, and measure during it; the same seed, the same luck."""
    dice = random.Random(seed)
    learners = [Learner(curve) for curve in curves]
    outcomes = []
    for stretch in stretches:
        rescales = sum(one.rescales for one in learners) / len(learners)
        pool = _change_pool(learners, stretch.nodes, dice)
        true = _problem(learners, pool, known(learners).curves)
        plan = _plan(planning, learners, pool, method(learners))
        shares = [(len(plan.assignment[one.key]),) for one in true.trainers]
        outcomes.append(Outcome(value(true, shares), planning(true).objective, rescales))
        for key, one in enumerate(learners):
            _train(one, plan.assignment[str(key)], stretch.seconds, dice)
    return outcomes


def _plan(
    planning: Planning, learners: Sequence[Learner], pool: frozenset[str], curves: Curves
) -> Plan:
    """Plan as the controller does: exploring takes no trainer's last node."""
    problem = _problem(learners, pool, curves.curves)
    plan = planning(problem)
    if curves.expected is not None and stops_a_trainer(problem, plan):
        plan = planning(_problem(learners, pool, curves.expected))
    return plan


def wandering(plans: int, seed: int) -> list[Stretch]:
    """A pool that changes all the time, by about a quarter."""
    dice = random.Random(seed)
    size = _log_uniform(dice, LEAST_POOL, MOST_POOL)
    stretches = []
    for _ in range(plans):
        size = min(max(size * math.exp(dice.gauss(0, 0.25)), LEAST_POOL), MOST_POOL)
        stretches.append(Stretch(round(size), dice.uniform(60, 600)))
    return stretches


def steady(plans: int, seed: int) -> list[Stretch]:
    """A pool that never changes: nothing is learnt by the way."""
    dice = random.Random(seed)
    size = round(_log_uniform(dice, LEAST_POOL, MOST_POOL))
    return [Stretch(size, dice.uniform(60, 600)) for _ in range(plans)]


def recorded_curves(path: Path, count: int, seed: int) -> list[ThroughputCurve]:
    """Measured curves: of the recorded models, drawn by lot."""
    models: dict[str, ThroughputCurve] = {}
    for one in json.loads(path.read_text()):
        curve = ThroughputCurve(tuple(one["curve_nodes"]), tuple(one["curve_throughput"]))
        models.setdefault(one["name"].partition("-")[2], curve)
    return random.Random(seed).choices(list(models.values()), k=count)


def made_curves(count: int, seed: int) -> list[ThroughputCurve]:
    """Curves after the universal scalability law, from all but linear to peaked at 30 nodes."""
    dice = random.Random(seed)
    return [
        _law(
            _log_uniform(dice, 100, 1e4),
            _log_uniform(dice, 1e-3, 0.2),
            _log_uniform(dice, 1e-6, 1e-3),
        )
        for _ in range(count)
    ]


def _law(unit: float, serial: float, pairs: float) -> ThroughputCurve:
    values = (unit * n / (1 + serial * (n - 1) + pairs * n * (n - 1)) for n in SIZES)
    return ThroughputCurve(SIZES, tuple(values))


def _log_uniform(dice: random.Random, least: float, most: float) -> float:
    return math.exp(dice.uniform(math.log(least), math.log(most)))


def _view(key: int, nodes: int) -> TrainerView:
    trainer = Trainer(key, str(key), "user", "partition", TrainerRecord(1, MOST), 0.0, ())
    placed = {ElementId(key, task): Place(str(task)) for task in range(nodes)}
    return TrainerView(trainer, TrainerState(), placed, spare=())


def _problem(
    learners: Sequence[Learner], pool: frozenset[str], curves: Sequence[ThroughputCurve]
) -> Problem:
    objective = _objective([Facts(curve, 1, MOST) for curve in curves])
    trainers = tuple(
        PlannedTrainer(str(key), 1, MOST, one.held, curve, UP_S, DOWN_S)
        for key, (one, curve) in enumerate(zip(learners, objective, strict=True))
    )
    return Problem(pool, FORWARD_S, trainers)


def _change_pool(learners: Sequence[Learner], nodes: int, dice: random.Random) -> frozenset[str]:
    """New nodes come, or any nodes are reclaimed, those of trainers too."""
    held = [name for one in learners for name in sorted(one.held)]
    others = (f"n{number}" for number in itertools.count() if f"n{number}" not in set(held))
    candidates = held + list(itertools.islice(others, max(0, nodes - len(held))))
    pool = frozenset(dice.sample(candidates, nodes))
    for one in learners:
        if not one.held <= pool:
            one.held, one.rescales = one.held & pool, one.rescales + 1
    return pool


def _train(learner: Learner, nodes: frozenset[str], seconds: float, dice: random.Random) -> None:
    """Measure it twice on these nodes; one look in ten meets a straggler, the first the warm-up."""
    rescaled = len(nodes) != len(learner.held)
    learner.held, learner.rescales = nodes, learner.rescales + rescaled
    if not nodes:
        return
    looks = [(15.0, dice.uniform(0.4, 0.95))] if rescaled else []
    for _ in range(2):
        straggler = dice.uniform(0.6, 0.95) if dice.random() < 0.1 else 1.0
        looks.append((seconds / 2, straggler * math.exp(dice.gauss(0, 0.04))))
    true = learner.true.at(len(nodes))
    measured = [Measurement(len(nodes), true * share, time) for time, share in looks]
    learner.generations.append((learner.rescales, measured))
