"""One turn of the controller: observe, plan, act. The same loop serves the daemon and a replay.

It is handed its gateway, planner, keeper, history and clock, and waits for nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from bftrainer_slurm.controller.act import Pacer, carry_out
from bftrainer_slurm.controller.actions import Action, Cancel, Grow, Shrink
from bftrainer_slurm.controller.appraisal import Appraise
from bftrainer_slurm.controller.history import History
from bftrainer_slurm.controller.holes import Holes
from bftrainer_slurm.controller.moves import hold_unplaced, moves_of
from bftrainer_slurm.controller.progress import ProgressBook
from bftrainer_slurm.controller.question import (
    Outlook,
    problem_of,
    remember_changes,
    same_question,
)
from bftrainer_slurm.controller.schedule import Schedule
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.status import cluster_status, trainer_status
from bftrainer_slurm.controller.stays import Stays
from bftrainer_slurm.controller.upkeep import (
    bring_back_failed,
    clear_finished,
    near_limit,
    overdue,
    remember_starts,
    spare_reclaimed,
)
from bftrainer_slurm.controller.view import (
    Memory,
    Observation,
    TrainerView,
    free_nodes,
    hardware_of,
    view_trainer,
)
from bftrainer_slurm.keeper.protocol import NoteKind, NumberedNote
from bftrainer_slurm.model import ElementId, ElementState, Queue, Trainer
from bftrainer_slurm.planner.objectives import find
from bftrainer_slurm.planner.problem import Plan, PlanMaker, Problem
from bftrainer_slurm.slurm.gateway import Gateway, GatewayError

logger = logging.getLogger(__name__)

_AVOID_AFTER_REFUSAL_S = 30.0
_PROGRESS_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class World:
    """What the loop is handed.

    ``mine`` says which trainers are this controller's, ``appraise`` what is known of one.
    """

    gateway: Gateway
    planner: PlanMaker
    history: History
    end_run: Callable[[int], None]
    clock: Callable[[], float]
    pacer: Pacer
    mine: Callable[[Trainer], bool]
    appraise: Appraise


@dataclass(slots=True)
class _Known:
    """The last reading, and what was made of it."""

    observation: Observation
    views: tuple[TrainerView, ...] = ()
    free: frozenset[str] = frozenset()
    problem: Problem | None = None
    plan: Plan | None = None


class Controller:
    """The loop's state: what was last seen, and the memory between turns."""

    def __init__(self, world: World, settings: Settings) -> None:
        self._world = world
        self._settings = settings
        now_s = world.clock()
        self.schedule = Schedule(settings, now_s)
        self._known = _Known(Observation(now_s, (), Queue((), (), frozenset())))
        self._memory = Memory(given_up=world.history.given_up())
        self._stays = Stays(world.history)
        self._holes = Holes(world.history)
        self._objective = find(settings.objective)
        self._progress = ProgressBook()
        self._progress_saved_s: dict[int, float] = {}
        self._came: dict[ElementId, tuple[str, float]] = {}  # let go by us, and up since
        world.history.forget_old(now_s)

    def take(self, notes: Iterable[NumberedNote]) -> None:
        """Hear what elements say; it may bring the next look forward."""
        for numbered in notes:
            note = numbered.note
            if note.kind is NoteKind.PROGRESS:
                self._take_progress(numbered)
                continue
            self._stays.take(numbered)
            release = self._memory.releases.get(ElementId(note.array, note.task))
            expected = release is not None and release.node == note.node
            if note.kind is NoteKind.UP and expected:
                self._came[ElementId(note.array, note.task)] = (note.node, numbered.time_s)
            else:
                self.schedule.heard(note.kind, self._world.clock())

    def turn(self) -> None:
        """Look at Slurm, plan, and act.

        Raises:
            GatewayError: Slurm did not answer, or not as it should; the schedule says when to try
                again.
        """
        try:
            observation = self._observe()
            actions = self._decide(observation)
            refused = carry_out(
                actions, self._world.gateway, self._world.pacer, self._world.end_run
            )
        except GatewayError:
            self.schedule.failed(self._world.clock())
            raise
        self._remember(actions, refused)

    def status(self, controller: dict[str, Any]) -> dict[str, Any]:
        """Return the status to publish; ``controller`` says who publishes it."""
        now_s, known = self._world.clock(), self._known
        trainers = [
            trainer_status(
                view,
                {
                    node: time_s
                    for element, (node, time_s) in self._came.items()
                    if view.placed.get(node) == element
                },
                self._world.history.tally(view.array),
                self._progress,
                self._memory.given_up.get(view.array),
                now_s,
            )
            for view in known.views
        ]
        return cluster_status(
            now_s=now_s,
            controller=controller,
            views=known.views,
            free=known.free,
            trainers=trainers,
            plan=known.plan,
            malformed=known.observation.queue.malformed,
        )

    def _observe(self) -> Observation:
        gateway, now_s, last = self._world.gateway, self._world.clock(), self._known.observation
        nodes_due = self.schedule.nodes_due(now_s)
        reservations_due = self.schedule.reservations_due(now_s)
        queue = gateway.queue()
        mine = tuple(trainer for trainer in queue.trainers if self._world.mine(trainer))
        others = _nodes_of([trainer for trainer in queue.trainers if trainer not in mine])
        observation = Observation(
            now_s,
            gateway.nodes() if nodes_due else last.nodes,
            replace(queue, trainers=mine, ordinary_nodes=queue.ordinary_nodes | others),
            gateway.reservations() if reservations_due else last.reservations,
        )
        ending = any(
            element.state is ElementState.ENDING for trainer in mine for element in trainer.elements
        )
        self.schedule.looked(self._world.clock(), nodes_due, reservations_due, ending)
        self._stays.update(mine, now_s)
        self._holes.update(observation, self._settings.partition)
        self._came.clear()
        arrays = {trainer.array for trainer in mine}
        self._progress.forget(arrays)
        for view in self._known.views:
            if view.array not in arrays:
                self._world.end_run(view.array)
        return observation

    def _decide(self, observation: Observation) -> list[Action]:
        now_s, settings = observation.time_s, self._settings
        views = self._views(observation)
        memory = remember_starts(views, self._memory, now_s)
        memory = spare_reclaimed(self._known.views, views, memory, now_s)
        memory = remember_changes(self._known.views, views, memory, now_s, self._world.appraise)
        taken = observation.queue.ordinary_nodes
        actions, memory = overdue(views, taken, memory, now_s, settings)
        for view in views:
            if view.finishing:
                more, memory = clear_finished(view, memory, now_s)
            else:
                more, memory = bring_back_failed(view, memory, now_s, settings)
                more += near_limit(view, now_s, settings)
            actions += more
        views = tuple(view_trainer(view.trainer, memory) for view in views)
        free = free_nodes(observation, views, memory, settings)
        problem = problem_of(views, free, memory, now_s, self._outlook(observation))
        plan = self._plan(problem, now_s)
        moves, memory = moves_of(plan, views, free, now_s, memory)
        actions += moves
        for view in views:
            if not view.finishing:
                actions += hold_unplaced(view, actions)
        self._memory = memory
        self._known = replace(
            self._known, observation=observation, views=views, free=free, problem=problem, plan=plan
        )
        return actions

    def _outlook(self, observation: Observation) -> Outlook:
        return Outlook(
            objective=self._objective,
            appraise=self._world.appraise,
            forward_time_s=self._holes.forward_time_s(self._settings),
            life_s=self._holes.life_s(observation),
            hardware=hardware_of(observation, self._settings),
            grown_pool=self._holes.grown_pool,
        )

    def _views(self, observation: Observation) -> tuple[TrainerView, ...]:
        return tuple(view_trainer(trainer, self._memory) for trainer in observation.queue.trainers)

    def _plan(self, problem: Problem, now_s: float) -> Plan:
        last = self._known.plan
        same = same_question(problem, self._known.problem)
        if same and last is not None and last.status == "optimal":
            return last
        plan = self._world.planner.plan(problem)
        used = sum(len(nodes) for nodes in plan.assignment.values())
        self._world.history.add_plan(
            now_s, len(problem.pool), used, plan.objective, plan.status, plan.solve_s
        )
        return plan

    def _remember(self, actions: list[Action], refused: list[Action]) -> None:
        now_s = self._world.clock()
        avoid = dict(self._memory.avoid)
        releases = dict(self._memory.releases)
        for action in actions:
            if isinstance(action, Shrink) and action not in refused:
                self._stays.shrunk(action.elements)
            if isinstance(action, Cancel) and action.why != "finished":
                self._world.history.give_up(action.array, now_s, action.why)
            if isinstance(action, Grow) and action in refused:
                releases.pop(action.element, None)
                avoid[action.node] = now_s + _AVOID_AFTER_REFUSAL_S
        self._memory = replace(self._memory, avoid=avoid, releases=releases)

    def _take_progress(self, numbered: NumberedNote) -> None:
        array = numbered.note.array
        if array not in {view.array for view in self._known.views}:
            return
        report = self._progress.add(numbered)
        failures = {key: n for key, n in self._memory.failures.items() if key != array}
        self._memory = replace(self._memory, failures=failures)
        if report.time_s - self._progress_saved_s.get(array, 0.0) >= _PROGRESS_EVERY_S:
            self._progress_saved_s[array] = report.time_s
            self._world.history.add_progress(
                array, report.time_s, report.samples, json.dumps(report.measures)
            )


def _nodes_of(trainers: Iterable[Trainer]) -> frozenset[str]:
    there = (ElementState.RUNNING, ElementState.ENDING)
    return frozenset(
        element.node
        for trainer in trainers
        for element in trainer.elements
        if element.node and element.state in there
    )
