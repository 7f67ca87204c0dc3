"""The decision of one turn: upkeep, elements that must leave, the plan, and moves towards it.

It does no I/O; it only calls the planner.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from types import MappingProxyType

from bftrainer_slurm.controller.decide.actions import Action, Shrink
from bftrainer_slurm.controller.decide.available import (
    available,
    bars_for_all,
    bars_for_growth,
    bars_on,
    growable,
    hardware_of,
    just_left,
    keep_limits,
    nodes_off,
    refill,
    soon_available,
)
from bftrainer_slurm.controller.decide.eligibility import (
    eligibility,
    out_of_node_hours,
    too_few_left,
)
from bftrainer_slurm.controller.decide.headroom import headroom
from bftrainer_slurm.controller.decide.parts import Room, refill_gpus, without_room
from bftrainer_slurm.controller.decide.planning import Planning, StandingPlan, problem_of
from bftrainer_slurm.controller.decide.reconcile import (
    SOON_OFF,
    complete,
    end,
    end_asked,
    end_mute,
    hold_reclaimed,
    late_nodes,
    leave,
    maintain,
    moves_towards,
)
from bftrainer_slurm.controller.decide.verdicts import judge
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.bad_nodes import WENT_WRONG, Bar
from bftrainer_slurm.controller.state.cluster import ClusterView
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.profiles import PerformanceModel
from bftrainer_slurm.controller.state.registry import TrainerErrors
from bftrainer_slurm.controller.state.trainer_state import TrainerState, refuse
from bftrainer_slurm.controller.state.view import TrainerView, without
from bftrainer_slurm.planner.objectives import Objective, find
from bftrainer_slurm.planner.problem import Plan, PlanMaker, Problem

_AVOID_S = 60.0  # how long to avoid an idle node on which an element did not start


@dataclass(frozen=True, slots=True)
class Decision:
    """The actions of a turn, new states, and what the status and the next turn need."""

    actions: tuple[Action, ...] = ()
    states: Mapping[int, TrainerState] = field(default_factory=dict)  # new ones, by array
    bad: tuple[Bar, ...] = ()  # for nodes where something went wrong
    free: frozenset[str] = frozenset()  # into which trainers may grow
    left_alone: Mapping[str, int] = field(default_factory=dict)  # other idle nodes, by reason
    bars: tuple[Bar, ...] = ()  # of idle nodes
    stuck: Mapping[int, str] = field(default_factory=dict)  # why trainers (by array) cannot grow
    standing: StandingPlan | None = None
    trouble: str | None = None  # why there is no plan

    @property
    def plan(self) -> Plan | None:
        """The current plan."""
        return None if self.standing is None else self.standing.plan


@dataclass(slots=True)
class _Draft:
    """An unfinished decision: the cluster without elements that leave, and the actions so far."""

    cluster: ClusterView
    actions: list[Action] = field(default_factory=list)
    states: dict[int, TrainerState] = field(default_factory=dict)

    def end(
        self,
        actions: Sequence[Action],
        states: Mapping[int, TrainerState] = MappingProxyType({}),
    ) -> None:
        """Add actions and new states; remove elements that leave from the cluster."""
        self.actions += actions
        self.states |= states
        ends = (action for action in actions if isinstance(action, Shrink))
        gone = {element for action in ends for element in action.elements}
        if gone or states:
            views = (without(_judged(view, states), gone) for view in self.cluster.views)
            self.cluster = replace(self.cluster, views=tuple(views))


@dataclass(slots=True)
class Decider:
    """Makes the decision of each turn."""

    planner: PlanMaker
    performance: PerformanceModel
    history: History
    settings: Settings
    errors: TrainerErrors
    _objective: Objective = field(init=False)
    _planning: Planning = field(init=False)

    def __post_init__(self) -> None:
        self._objective = find(self.settings.objective)
        self._planning = Planning(self.planner, self.history)

    def decide(self, cluster: ClusterView) -> Decision:
        """Return this turn's decision; a trainer that causes errors gets only its upkeep."""
        others = _without_faulty(cluster, self.errors.why)
        try:
            return self._decide(others, cluster.views)
        except Exception:
            for view in others.views:
                with self.errors.of(view.array):
                    _, build, _ = self._without_plan(self._draft(replace(others, views=(view,))))
                    build()
            if not self.errors.why.keys() & {view.array for view in others.views}:
                raise
            return self.decide(cluster)

    def _decide(self, cluster: ClusterView, everybody: tuple[TrainerView, ...]) -> Decision:
        snapshot, settings = cluster.snapshot, self.settings
        draft = self._draft(cluster)
        decision, build, off = self._without_plan(draft)
        standing = self._planning.answer(build, cluster.now_s)
        everybody = tuple(_judged(view, draft.states) for view in everybody)
        moves: list[Action] = []
        unused = set(decision.free)  # first for finished trainers: their elements end at once
        # Computed only if a trainer has parts of nodes.
        room = cache(lambda: Room(replace(cluster, kept_gpus=draft.cluster.kept_gpus), off))
        for view in everybody:
            with self.errors.of(view.array):
                free = unused
                if view.gpus and view.finishing:
                    free = room().take(view, snapshot.shared)
                last = complete(view, free, snapshot)
                unused.difference_update(*(grow.nodes for grow in last))
                moves += last
        if standing is not None:
            in_parts = [view for view in draft.cluster.views if view.gpus]
            waits = without_room(in_parts, standing.plan, room()) if in_parts else ()
            decision = replace(decision, bars=(*decision.bars, *waits))

            def move(view: TrainerView) -> list[Action]:
                free = unused
                if view.gpus:
                    free = room().take(view, standing.plan.assignment.get(str(view.array), ()))
                return moves_towards(view, standing.plan, free, snapshot, settings)

            moves += self._of_each(draft.cluster.views, move)
        upkeep = self._of_each(everybody, lambda view: maintain(view, snapshot, cluster.soon_off))
        held = self._of_each(everybody, lambda view: hold_reclaimed(view, moves))
        actions = (*upkeep, *draft.actions, *moves, *held)
        return replace(decision, actions=actions, standing=standing, trouble=self._planning.trouble)

    def _draft(self, cluster: ClusterView) -> _Draft:
        """Decide which elements must leave, whatever the plan will be."""
        snapshot = cluster.snapshot
        late, until_s = list[str](), cluster.now_s + _AVOID_S
        states: dict[int, TrainerState] = {}
        for view in cluster.views:
            nodes = late_nodes(view, snapshot)
            if nodes and view.gpus:  # other trainers' elements may still fit there
                states[view.array] = refuse(view.state, nodes, until_s)
            else:
                late += nodes
        if late:
            bar = Bar(WENT_WRONG, frozenset(late), until_s=until_s)
            cluster = replace(cluster, bad=(*cluster.bad, bar))
        draft = _Draft(cluster)
        draft.end((), states)
        self._end_elements(draft)
        self._make_headroom(draft)
        self._judge(draft)
        views, tally = draft.cluster.views, self.history.tally
        draft.end((), out_of_node_hours(views, lambda one: tally(one).node_s, cluster.now_s))
        return draft

    def _without_plan(
        self, draft: _Draft
    ) -> tuple[Decision, Callable[..., Problem], frozenset[str]]:
        """Return the decision so far, a function that builds the planning problem, and nodes.

        Trainers must not get parts of these nodes.
        """
        cluster, settings = draft.cluster, self.settings
        bars = tuple(bars_for_all(cluster, settings))
        off = nodes_off(bars)
        idle = available(cluster, off)
        free = growable(idle, cluster, settings)
        eligible = eligibility(cluster.views, cluster.snapshot)
        unused = available(cluster) | cluster.snapshot.powered_down
        alone = {one.why: len(one.nodes & unused) for one in bars}
        alone["kept for ordinary jobs"] = len(idle - free)
        hardware = hardware_of(cluster.snapshot, settings)
        by_then = free
        if soon := soon_available(cluster, off):
            by_then |= growable(idle | soon, cluster, settings) & soon
        parts_off = off | just_left(cluster, settings).nodes
        objective, performance = self._objective, self.performance
        build = partial(
            problem_of, cluster, by_then, objective, performance, hardware, eligible, parts_off
        )
        shown = bars_on((*bars, *bars_for_growth(cluster, settings), *eligible.bars), unused)
        decision = Decision(
            *((), draft.states, cluster.bad, free),
            left_alone=alone,
            bars=tuple(shown),
            stuck=eligible.stuck,
        )
        return decision, build, parts_off

    def _of_each(
        self, views: Iterable[TrainerView], decide: Callable[[TrainerView], Sequence[Action]]
    ) -> list[Action]:
        actions: list[Action] = []
        for view in views:
            with self.errors.of(view.array):
                actions += decide(view)
        return actions

    def _end_elements(self, draft: _Draft) -> None:
        """End elements that may not stay where they are."""
        settings, snapshot = self.settings, draft.cluster.snapshot
        # The admin waits for jobs there to end, but elements' limits would be lengthened.
        drain = partial(leave, nodes=snapshot.nodes.draining, why="its node is draining")
        off = partial(leave, nodes=draft.cluster.let_off, why=SOON_OFF)
        keep = partial(keep_limits, snapshot=snapshot, settings=settings)

        def end_too_few(view: TrainerView) -> list[Shrink]:
            why = too_few_left(view)
            return leave(view, view.nodes, why) if why else []

        for decide in (end_asked, end_mute, drain, off, end_too_few, keep):
            views = (view for view in draft.cluster.views if not view.over)
            draft.end(self._of_each(views, decide))

    def _make_headroom(self, draft: _Draft) -> None:
        """Empty nodes that ordinary jobs need."""
        cluster = draft.cluster
        if cluster.snapshot.queue.asking:
            room = headroom(cluster)
            draft.cluster = replace(cluster, kept=room.idle, kept_gpus=room.gpus)
            if cluster.now_s >= cluster.forecast.due_s - cluster.lead_s:
                why = "an ordinary job is expected there"
                draft.end(self._of_each(cluster.views, partial(leave, nodes=room.vacate, why=why)))
                draft.end(self._of_each(cluster.views, partial(end, these=room.elements, why=why)))
        if cluster.reserve_gpus:
            draft.end(refill_gpus(draft.cluster))
        if cluster.reserve:
            draft.end(refill(self._free(draft.cluster), draft.cluster))

    def _judge(self, draft: _Draft) -> None:
        """End elements on nodes that may be bad, and give up trainers that fail everywhere."""
        cluster, settings = draft.cluster, self.settings
        if not any(view.state.failing for view in cluster.views):
            return
        verdict = judge(cluster, growable(self._free(cluster), cluster, settings), settings)
        draft.cluster = replace(cluster, bad=verdict.bad)
        draft.end(verdict.leaving, verdict.states)

    def _free(self, cluster: ClusterView) -> frozenset[str]:
        return available(cluster, nodes_off(bars_for_all(cluster, self.settings)))


def _without_faulty(cluster: ClusterView, faulty: Container[int]) -> ClusterView:
    """Return the cluster without the trainers that cause errors, and without their nodes."""
    theirs = [view for view in cluster.views if view.array in faulty]
    if not theirs:
        return cluster
    unhandled_nodes = cluster.unhandled_nodes.union(*(view.state.nodes for view in theirs))
    views = tuple(view for view in cluster.views if view.array not in faulty)
    return replace(cluster, views=views, unhandled_nodes=unhandled_nodes)


def _judged(view: TrainerView, states: Mapping[int, TrainerState]) -> TrainerView:
    return replace(view, state=states[view.array]) if view.array in states else view
