"""Runs the controller's loop on a simulated cluster, for every command that replays.

``replay`` knows no controller and ``controller`` no replay; only this module imports both.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from bftrainer_slurm.controller.act import MOST_ACTIONS, Groups
from bftrainer_slurm.controller.loop import Controller, Dependencies
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.profiles import Estimate, PerformanceModel, RescaleCosts
from bftrainer_slurm.controller.state.registry import REST_S
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.problem import Plan, PlanMaker, Problem
from bftrainer_slurm.planner.solver import Planner
from bftrainer_slurm.replay.assessment.harvest import HarvestOptions, HarvestResult, Reached, Sample
from bftrainer_slurm.replay.cluster import Moment, SimulatedCluster
from bftrainer_slurm.replay.drive import (
    Outcome,
    Timeline,
    dedicated_samples,
    drive,
    drive_as_daemon,
)
from bftrainer_slurm.replay.figures import Replayed
from bftrainer_slurm.replay.learning import Learning
from bftrainer_slurm.replay.logs.played import Play
from bftrainer_slurm.replay.ordinary import Pass, passes_of
from bftrainer_slurm.replay.playback import OrdinaryJobs
from bftrainer_slurm.replay.policies import EqualShare, Oracle, PaperModel
from bftrainer_slurm.replay.progress import SimulatedTrainer
from bftrainer_slurm.replay.slurm import PARTITION
from bftrainer_slurm.replay.trace import Trace
from bftrainer_slurm.replay.trainers import TrainerSpec

POLICIES = ("milp", "paper", "equal-share", "oracle")
Watch = Callable[[Moment], None]


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How to replay. ``forward_time_s`` None adapts it to recent holes.

    With ``learn_curves`` plans use only the throughput that a trainer has shown so far.
    """

    policy: str = "milp"
    objective: str = "speedup"
    at_once: int = 10
    forward_time_s: float | None = None
    rescale_scale: float = 1.0
    look_every_s: float = 0.0
    learn_curves: bool = False


def replay(
    trace: Trace,
    trainers: Sequence[TrainerSpec],
    options: ReplayOptions,
    planner: PlanMaker,
    watch: Watch = lambda moment: None,
) -> Replayed:
    """Replay a trace, then twice more for the references of U."""
    outcome, plan_s = run(trace, trainers, options, planner, watch)
    dedicated = _dedicated(trace, trainers, options, planner, outcome)
    free = run(trace, trainers, _without_costs(options), planner)[0]
    return Replayed(outcome, dedicated, free.samples, plan_s)


def harvest(
    sample: Sample, trainers: tuple[TrainerSpec, ...], wanted: HarvestOptions, reached: Reached
) -> HarvestResult:
    """Replay for ``bftrainer assess``."""

    def watch(moment: Moment) -> None:
        timeline.add(moment)
        reached(moment.time_s)

    span_s = (sample.from_s, sample.to_s)
    timeline = Timeline()
    trace, play, backfill_s = sample.trace, sample.play, wanted.backfill_s
    jobs = None if play is None else play_back(trace, play, backfill_s)[1]
    with Planner() as planner:
        planner.warm_up()
        ordinary = jobs or OrdinaryJobs(trace)
        interval_s = backfill_s if jobs else None
        outcome = run_live(ordinary, span_s, trainers, wanted.at_once, interval_s, planner, watch)
        options = ReplayOptions(at_once=wanted.at_once)
        dedicated = _dedicated(trace, trainers, options, planner, outcome)
    efficiency = outcome.samples / dedicated if dedicated else 0.0
    started = None if jobs is None else tuple(jobs.close(sample.to_s))
    return HarvestResult(
        outcome.used_node_hours, efficiency, outcome.samples, started, tuple(timeline.moments)
    )


def play_back(
    trace: Trace, play: Play, backfill_s: float, kind: type[OrdinaryJobs] = OrdinaryJobs
) -> tuple[list[Pass], OrdinaryJobs]:
    """Return the backfill passes in a trace, and the playback of its ordinary jobs."""
    starts_s = (one.start_s for one in play.jobs if one.backfilled)
    passes = passes_of(starts_s, trace.start_s, trace.end_s, backfill_s)
    return passes, kind(trace, play.jobs, passes, play.kinds)


def run(
    trace: Trace,
    trainers: Sequence[TrainerSpec],
    options: ReplayOptions,
    planner: PlanMaker,
    watch: Watch = lambda moment: None,
) -> tuple[Outcome, Sequence[float]]:
    """Replay a trace once; return the outcome, and how long each plan took (s)."""
    span_s = (trace.start_s, trace.end_s)
    cluster = SimulatedCluster(
        OrdinaryJobs(trace), span_s, trainers, options.at_once, options.rescale_scale
    )
    plan_s: list[float] = []
    policy = _policy(options.policy, planner, cluster, trace)
    timed = TimedPlanner(policy, lambda plan, took_s: plan_s.append(took_s))
    settings = Settings(
        partition=PARTITION,
        objective=options.objective,
        forward_time_s=options.forward_time_s or 0.0,
    )
    # The paper's slurmctld takes any number of commands at once, and elements start at once.
    with _controller(cluster, timed, settings, options, math.inf, rest_s=0.0) as controller:
        outcome = drive(controller, cluster, options.look_every_s, watch)
    return outcome, plan_s


def run_live(
    ordinary: OrdinaryJobs,
    span_s: tuple[float, float],
    trainers: Sequence[TrainerSpec],
    at_once: int,
    backfill_s: float | None,
    planner: PlanMaker,
    watch: Watch = lambda moment: None,
) -> Outcome:
    """Replay with the daemon's default settings, beside ordinary jobs if the log has them."""
    cluster = SimulatedCluster(ordinary, span_s, trainers, at_once, backfill_s=backfill_s)
    settings = Settings(partition=PARTITION)
    with _controller(cluster, planner, settings, ReplayOptions()) as controller:
        due_s, hint = controller.schedule.due_s, controller.schedule.hint
        return drive_as_daemon(controller, due_s, partial(hint, NoteKind.GONE), cluster, watch)


@contextmanager
def _controller(
    cluster: SimulatedCluster,
    planner: PlanMaker,
    settings: Settings,
    options: ReplayOptions,
    most_actions: float = MOST_ACTIONS,
    rest_s: float = REST_S,
) -> Iterator[Controller]:
    history = History(":memory:")
    deps = Dependencies(
        gateway=cluster,
        planner=planner,
        history=history,
        groups=Groups(),
        clock=lambda: cluster.now_s,
        mine=lambda trainer: True,
        performance=_ExactModel(cluster, options),
        most_actions=most_actions,
        rest_s=rest_s,
    )
    try:
        yield Controller(deps, settings)
    finally:
        history.close()


def _without_costs(options: ReplayOptions) -> ReplayOptions:
    """Return the options with free rescaling, immediate looks and known curves."""
    return replace(options, rescale_scale=0.0, look_every_s=0.0, learn_curves=False)


def _dedicated(
    trace: Trace,
    trainers: Sequence[TrainerSpec],
    options: ReplayOptions,
    planner: PlanMaker,
    outcome: Outcome,
) -> float:
    return dedicated_samples(
        trace,
        outcome.mean_pool_nodes,
        lambda other: run(other, trainers, _without_costs(options), planner)[0],
    )


class TimedPlanner:
    """Makes plans with another planner; calls ``tell`` with each, and how long it took (s)."""

    def __init__(self, maker: PlanMaker, tell: Callable[[Plan, float], None]) -> None:
        self._maker, self._tell = maker, tell

    def plan(self, problem: Problem) -> Plan:
        """Return a plan."""
        begin_s = time.perf_counter()
        plan = self._maker.plan(problem)
        self._tell(plan, time.perf_counter() - begin_s)
        return plan


def _policy(name: str, planner: PlanMaker, cluster: SimulatedCluster, trace: Trace) -> PlanMaker:
    match name:
        case "milp":
            return planner
        case "paper":
            return PaperModel(planner)
        case "equal-share":
            return EqualShare()
        case "oracle":
            return Oracle(planner, trace, lambda: cluster.now_s)
    raise ValueError(f"no policy {name}")


class _ExactModel(PerformanceModel):
    """Takes curves and costs from the simulated trainers themselves, or learns the curves.

    Simulated trainers report nothing.
    """

    def __init__(self, cluster: SimulatedCluster, options: ReplayOptions) -> None:
        self._cluster = cluster
        self._scale = options.rescale_scale
        self._learning = Learning() if options.learn_curves else None

    def estimates(self, views: Sequence[TrainerView], now_s: float) -> list[Estimate]:
        """Return each trainer's curve, costs and progress for the plan."""
        trainers = [self._cluster.active[view.array] for view in views]
        curves = self._curves(trainers, now_s)
        expected = {} if self._learning is None else self._learning.expected
        return [
            Estimate(
                curve,
                self.costs(view, now_s),
                min(1.0, one.samples / one.spec.total_samples),
                expected.get(view.array),
                noise=one.spec.noise,
            )
            for view, one, curve in zip(views, trainers, curves, strict=True)
        ]

    def costs(self, view: TrainerView, now_s: float) -> RescaleCosts:
        """Return the trainer's rescale costs."""
        spec = self._cluster.active[view.array].spec
        up_s, down_s = self._scale * spec.rescale_up_s, self._scale * spec.rescale_down_s
        return RescaleCosts(up_s, down_s, start_s=self._scale * spec.start_s)

    def joined(self, view: TrainerView) -> bool:
        """Simulated elements form a group at once."""
        return True

    def _curves(self, trainers: list[SimulatedTrainer], now_s: float) -> list[ThroughputCurve]:
        if self._learning is None:
            return [one.spec.curve for one in trainers]
        learnt = self._learning.curves(trainers, now_s)
        return [learnt[one.array] for one in trainers]
