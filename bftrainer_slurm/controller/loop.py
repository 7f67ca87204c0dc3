"""One turn of the controller: observe, plan, act. The same loop serves the daemon and a replay.

It is handed its gateway, planner, keeper's groups, history and clock, and waits for nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bftrainer_slurm.controller.act import Deeds, Pacer, carry_out
from bftrainer_slurm.controller.actions import Action, Cancel, Grow, Shrink
from bftrainer_slurm.controller.appraisal import Appraiser
from bftrainer_slurm.controller.clear import keep_clear, refill
from bftrainer_slurm.controller.endings import Endings
from bftrainer_slurm.controller.failures import (
    Where,
    bring_back,
    cancel_given_up,
    cancel_revived,
    judge,
)
from bftrainer_slurm.controller.groups import Groups
from bftrainer_slurm.controller.history import History
from bftrainer_slurm.controller.holes import Holes
from bftrainer_slurm.controller.limits import Limits, keep_apart, limits_of, note_refused, withdraw
from bftrainer_slurm.controller.moves import hold_unplaced, moves_of
from bftrainer_slurm.controller.newcomers import newcomers
from bftrainer_slurm.controller.question import (
    Outlook,
    problem_of,
    remember_changes,
    same_question,
    stops_a_trainer,
)
from bftrainer_slurm.controller.reading import read
from bftrainer_slurm.controller.schedule import Schedule
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.status import cluster_status, trainer_status
from bftrainer_slurm.controller.stays import Stays
from bftrainer_slurm.controller.upkeep import (
    clear_finished,
    leave_draining,
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
    in_service,
    view_trainer,
    without,
)
from bftrainer_slurm.controller.words import OF_MEMBERS, Words
from bftrainer_slurm.keeper.protocol import NoteKind, NumberedNote
from bftrainer_slurm.model import ElementId, ElementState, Queue, Trainer
from bftrainer_slurm.planner.objectives import find
from bftrainer_slurm.planner.problem import Plan, PlanMaker, Problem
from bftrainer_slurm.slurm.gateway import Gateway, GatewayError

logger = logging.getLogger(__name__)

_APART_AFTER_REFUSAL_S = 30.0
_TIDY_EVERY_S = 86400.0
_SLOW_S = 1.0  # of a look: from then on it is said
_SAY_AGAIN_S = 600.0


@dataclass(frozen=True, slots=True)
class World:
    """What the loop is handed.

    ``mine`` says which trainers are this controller's, ``appraiser`` knows what they can do.
    """

    gateway: Gateway
    planner: PlanMaker
    history: History
    groups: Groups
    clock: Callable[[], float]
    pacer: Pacer
    mine: Callable[[Trainer], bool]
    appraiser: Appraiser


@dataclass(slots=True)
class _Known:
    """The last reading, and what was made of it."""

    observation: Observation
    views: tuple[TrainerView, ...] = ()
    free: frozenset[str] = frozenset()
    limits: Limits = field(default_factory=Limits)
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
        self._by_array: dict[int, TrainerView] = {}
        self._memory = Memory(given_up=world.history.given_up())
        self._looked_s = world.history.looked_s()
        self._stays = Stays(world.history)
        self._endings = Endings()
        self._holes = Holes(world.history)
        self._objective = find(settings.objective)
        self._words = Words(world.history, world.appraiser)
        self._came: dict[ElementId, tuple[str, float]] = {}  # let go by us, and up since
        self._tidied_s = self._said_slow_s = float("-inf")
        self._malformed = 0

    def take(self, notes: Iterable[NumberedNote]) -> None:
        """Hear what elements say; it may bring the next look forward."""
        for numbered in notes:
            if numbered.note.kind not in OF_MEMBERS:
                self._take_hint(numbered)
            elif (view := self._by_array.get(numbered.note.array)) is not None:
                self._memory = self._words.take(view, numbered, self._memory)
                if numbered.note.kind is NoteKind.FAILED:
                    self.schedule.heard(NoteKind.FAILED, self._world.clock())

    def turn(self) -> None:
        """Look at Slurm, plan, and act.

        Raises:
            GatewayError: Slurm did not answer, or not as it should; the schedule says when to try
                again.
        """
        deeds = Deeds()
        try:
            observation = self._observe()
            actions = self._decide(observation)
            self.introduce()
            world = self._world
            carry_out(actions, world.gateway, world.pacer, world.groups, deeds)
        except GatewayError:
            self.schedule.failed(self._world.clock())
            raise
        finally:
            self._remember(deeds)
        self._looked_s = self._world.clock()
        self._world.history.looked(self._looked_s)

    def introduce(self) -> None:
        """Tell the keeper whose the trainers are, and how many nodes the plan gives them."""
        plan = self._known.plan
        for view in self._known.views:
            planned = plan.assignment.get(str(view.array)) if plan is not None else None
            want = len(view.placed if planned is None else planned)
            self._world.groups.own(view.array, view.trainer.user, want)

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
                self._words.progress,
                self._memory,
                known.limits.stuck.get(view.array),
                self._world.appraiser.known(view),
                now_s,
            )
            for view in known.views
        ]
        return cluster_status(
            now_s=now_s,
            controller=controller | {"history": self._world.history.trouble},
            views=known.views,
            free=known.free,
            trainers=trainers,
            plan=known.plan,
            malformed=known.observation.queue.malformed,
        )

    def _observe(self) -> Observation:
        now_s = self._world.clock()
        nodes_due = self.schedule.nodes_due(now_s)
        reservations_due = self.schedule.reservations_due(now_s)
        observation = read(
            self._world.gateway,
            self._known.observation,
            now_s,
            nodes_due=nodes_due,
            reservations_due=reservations_due,
            mine=self._world.mine,
        )
        self._say_if_malformed(observation.queue.malformed)
        mine = observation.queue.trainers
        ending = any(
            element.state is ElementState.ENDING for trainer in mine for element in trainer.elements
        )
        looked_s = self._world.clock()
        took_s = max(0.0, looked_s - now_s)
        self.schedule.looked(looked_s, nodes_due, reservations_due, ending, took_s)
        self._say_if_slow(took_s, looked_s)
        self._meet(mine)
        for element in self._stays.update(mine, now_s, self._came):
            self._world.groups.lost(element)
        self._holes.update(observation, self._settings.partition)
        self._came.clear()
        arrays = frozenset(trainer.array for trainer in mine)
        for array in self._by_array.keys() - arrays:
            self._world.groups.end(array)
        self._forget(arrays, now_s)
        return observation

    def _say_if_malformed(self, malformed: int) -> None:
        if malformed > self._malformed:
            logger.warning(
                "%d job arrays say that they are trainers and cannot be; they are left alone",
                malformed,
            )
        self._malformed = malformed

    def _say_if_slow(self, took_s: float, now_s: float) -> None:
        interval_s = self.schedule.slowed_to_s
        said_lately = now_s - self._said_slow_s < _SAY_AGAIN_S
        if interval_s is not None and took_s >= _SLOW_S and not said_lately:
            self._said_slow_s = now_s
            logger.warning(
                "slurmctld took %.1f s to answer, or limits our requests (rl_enable): it is asked "
                "every %.0f s for now",
                *(took_s, interval_s),
            )

    def _meet(self, trainers: tuple[Trainer, ...]) -> None:
        """Forget what is known of earlier jobs under the ids of trainers that have just come."""
        new = newcomers(trainers, self._by_array, self._looked_s)
        for array in new:
            self._world.history.forget(array)
        kept = {array: why for array, why in self._memory.given_up.items() if array not in new}
        self._memory = replace(self._memory, given_up=kept)

    def _decide(self, observation: Observation) -> list[Action]:
        now_s = observation.time_s
        views = self._views(observation)
        memory = self._noted(views, now_s)
        upkeep, memory = self._keep_up(views, observation, memory)
        views = tuple(view_trainer(view.trainer, memory) for view in views)
        life_s = self._holes.life_s(observation)
        ends, staying, memory = self._end_some(views, observation, memory, life_s)
        free = self._free(observation, views, memory, life_s)
        limits = limits_of(views, observation, memory, self._settings)
        outlook = self._outlook(observation, life_s, limits)
        problem = problem_of(staying, free, memory, now_s, outlook)
        plan = self._plan(
            problem,
            lambda: problem_of(staying, free, memory, now_s, outlook, exploring=False),
            now_s,
        )
        moves, memory = moves_of(plan, staying, free, now_s, memory)
        actions = [*upkeep, *ends, *moves]
        for view in views:
            if not view.finishing and view.array not in memory.given_up:
                actions += hold_unplaced(view, actions)
        self._memory = memory
        self._by_array = {view.array: view for view in views}
        self._known = _Known(observation, views, free, limits, problem, plan)
        return actions

    def _noted(self, views: tuple[TrainerView, ...], now_s: float) -> Memory:
        """Return the memory with what this reading adds to it."""
        before = self._known.views
        memory = note_refused(views, self._memory, now_s)
        memory = remember_starts(views, memory, now_s)
        memory = spare_reclaimed(before, views, memory, now_s)
        memory = remember_changes(before, views, memory, now_s, self._world.appraiser)
        return self._avoid_slow_nodes(views, memory, now_s)

    def _keep_up(
        self, views: tuple[TrainerView, ...], observation: Observation, memory: Memory
    ) -> tuple[list[Action], Memory]:
        """Return what elements need whatever the plan says."""
        now_s, taken = observation.time_s, observation.queue.ordinary_nodes
        actions, memory = withdraw(views, memory, now_s)
        late, memory = overdue(views, taken, memory, now_s, self._settings)
        cancelled, memory = cancel_revived(views, memory, now_s)
        actions += [*late, *cancelled]
        for view in views:
            if view.finishing:
                more, memory = clear_finished(view, memory, now_s)
            else:
                more, memory = bring_back(view, memory, self._words.has_trained(view.array), now_s)
                more += near_limit(view, now_s, self._settings)
            actions += more
        return actions, memory

    def _end_some(
        self,
        views: tuple[TrainerView, ...],
        observation: Observation,
        memory: Memory,
        life_s: Mapping[str, float],
    ) -> tuple[list[Action], tuple[TrainerView, ...], Memory]:
        """End what may not go on where it is, or at all; the views are without the former."""
        now_s = observation.time_s
        leaving = leave_draining(views, observation)
        staying = tuple(without(view, leaving) for view in views) if leaving else views
        if self._settings.reserve_nodes:
            idle = free_nodes(observation, views, memory, self._settings)
            given = refill(idle, staying, life_s, self._settings)
            staying = tuple(without(view, given) for view in staying)
            leaving += given
        if memory.failing:
            free = self._free(observation, views, memory, life_s)
            where = Where(free, in_service(observation, self._settings))
            suspected, memory = judge(staying, memory, where, now_s, self._settings)
            staying = tuple(without(view, suspected) for view in staying)
            leaving += suspected
        cancels, memory = cancel_given_up(views, memory, now_s)
        return [*leaving, *cancels], staying, memory

    def _free(
        self,
        observation: Observation,
        views: tuple[TrainerView, ...],
        memory: Memory,
        life_s: Mapping[str, float],
    ) -> frozenset[str]:
        """Return the nodes that trainers may grow onto."""
        free = free_nodes(observation, views, memory, self._settings)
        return keep_clear(free, self._holes.since_s, life_s, observation.time_s, self._settings)

    def _avoid_slow_nodes(
        self, views: tuple[TrainerView, ...], memory: Memory, now_s: float
    ) -> Memory:
        """Leave nodes alone for a while where an element's end may have delayed somebody."""
        slow = self._endings.slow(views, now_s, self._settings.slow_end_s)
        for node, took_s in slow.items():
            logger.warning("an element took %.1f s to end on %s: left alone for now", took_s, node)
        until_s = dict.fromkeys(slow, now_s + self._settings.bad_node_s)
        return replace(memory, avoid={**memory.avoid, **until_s}) if slow else memory

    def _outlook(
        self, observation: Observation, life_s: Mapping[str, float], limits: Limits
    ) -> Outlook:
        return Outlook(
            objective=self._objective,
            appraiser=self._world.appraiser,
            forward_time_s=self._holes.forward_time_s(self._settings),
            life_s=life_s,
            hardware=hardware_of(observation, self._settings),
            limits=limits,
            grown_pool=self._holes.grown_pool,
        )

    def _views(self, observation: Observation) -> tuple[TrainerView, ...]:
        return tuple(view_trainer(trainer, self._memory) for trainer in observation.queue.trainers)

    def _plan(self, problem: Problem, sober: Callable[[], Problem], now_s: float) -> Plan:
        """Plan, unless the last plan stands; soberly where exploring would stop a trainer."""
        last = self._known.plan
        same = same_question(problem, self._known.problem)
        if same and last is not None and last.status == "optimal":
            return last
        plan = self._world.planner.plan(problem)
        if stops_a_trainer(problem, plan) and (other := sober()) != problem:
            plan = self._world.planner.plan(other)
        used = sum(len(nodes) for nodes in plan.assignment.values())
        self._world.history.add_plan(
            now_s, len(problem.pool), used, plan.objective, plan.status, plan.solve_s
        )
        return plan

    def _remember(self, deeds: Deeds) -> None:
        now_s = self._world.clock()
        memory = self._memory
        releases = dict(memory.releases)
        for action in deeds.done:
            if isinstance(action, Shrink):
                self._stays.shrunk(action.elements)
            if isinstance(action, Cancel) and memory.given_up.get(action.array) == action.why:
                self._world.history.give_up(action.array, now_s, action.why)
        for action in deeds.refused:
            if isinstance(action, Grow):
                releases.pop(action.element, None)
                until_s = now_s + _APART_AFTER_REFUSAL_S
                memory = keep_apart(memory, action.element.array, action.node, until_s)
        self._memory = replace(memory, releases=releases)

    def _forget(self, arrays: frozenset[int], now_s: float) -> None:
        """Drop what concerns trainers that are gone, and once a day what is old."""
        self._words.forget(arrays)
        self._world.appraiser.forget(arrays)
        if now_s - self._tidied_s >= _TIDY_EVERY_S:
            self._tidied_s = now_s
            self._world.history.forget_old(now_s)
            self._world.history.lessons.forget_too_much(arrays)

    def _take_hint(self, numbered: NumberedNote) -> None:
        note = numbered.note
        self._stays.take(numbered)
        release = self._memory.releases.get(ElementId(note.array, note.task))
        expected = release is not None and release.node == note.node
        if note.kind is NoteKind.UP and expected:
            self._came[ElementId(note.array, note.task)] = (note.node, numbered.time_s)
        else:
            self.schedule.heard(note.kind, self._world.clock())
