"""The decision of one turn: upkeep, elements that must leave, the plan, and moves towards it.

It does no I/O; it only calls the planner.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

from bftrainer_slurm.controller.decide.actions import Action, Shrink
from bftrainer_slurm.controller.decide.available import (
    bars_for_all,
    bars_for_growth,
    bars_on,
    free_units,
    growable,
    hardware_of,
    keep_limits,
    nodes_off,
    refill,
)
from bftrainer_slurm.controller.decide.eligibility import (
    eligibility,
    out_of_node_hours,
    too_few_left,
)
from bftrainer_slurm.controller.decide.headroom import headroom
from bftrainer_slurm.controller.decide.planning import Planning, StandingPlan, problem_of
from bftrainer_slurm.controller.decide.reconcile import (
    SOON_OFF,
    Room,
    complete,
    end,
    end_asked,
    end_cut,
    end_mute,
    hold_reclaimed,
    late_nodes,
    leave,
    maintain,
    moves_towards,
    without_room,
)
from bftrainer_slurm.controller.decide.verdicts import judge
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.bad_nodes import LATE, Bar, Evidence
from bftrainer_slurm.controller.state.cluster import ClusterView
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.phases import VACATES
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
    bad: tuple[Evidence, ...] = ()  # of bad nodes
    free: Mapping[str, int] = field(default_factory=dict)  # units that trainers may grow into
    left_alone: Mapping[str, int] = field(default_factory=dict)  # other idle nodes, by reason
    bars: tuple[Bar, ...] = ()  # of idle nodes
    stuck: Mapping[int, str] = field(default_factory=dict)  # why trainers (by array) cannot grow
    standing: StandingPlan | None = None
    trouble: str | None = None  # why there is no plan
    as_they_come: bool = False  # whether the main scheduler starts jobs that are submitted

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
    as_they_come: bool = False

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
                    _, build = self._without_plan(self._draft(replace(others, views=(view,))))
                    build()
            if not self.errors.why.keys() & {view.array for view in others.views}:
                raise
            return self.decide(cluster)

    def _decide(self, cluster: ClusterView, everybody: tuple[TrainerView, ...]) -> Decision:
        snapshot, settings = cluster.snapshot, self.settings
        draft = self._draft(cluster)
        decision, build = self._without_plan(draft)
        standing = self._planning.answer(build, cluster.now_s)
        everybody = tuple(_judged(view, draft.states) for view in everybody)
        moves: list[Action] = []
        room = Room(draft.cluster, decision.free)
        # First for finished trainers: their elements end at once.
        moves += self._of_each(everybody, lambda view: complete(view, room, snapshot))
        if standing is not None:
            views, plan = draft.cluster.views, standing.plan
            waits = without_room(views, plan, room)
            decision = replace(decision, bars=(*decision.bars, *waits))
            planned = self._of_each(
                views, lambda view: moves_towards(view, plan, room, snapshot, settings)
            )
            if draft.as_they_come and snapshot.queue.asking:  # room elsewhere would draw them
                planned = [move for move in planned if not isinstance(move, Shrink)]
            moves += planned
        upkeep = self._of_each(everybody, lambda view: maintain(view, snapshot, cluster.soon_off))
        held = self._of_each(everybody, lambda view: hold_reclaimed(view, moves))
        actions = (*upkeep, *draft.actions, *moves, *held)
        return replace(decision, actions=actions, standing=standing, trouble=self._planning.trouble)

    def _draft(self, cluster: ClusterView) -> _Draft:
        """Decide which elements must leave, whatever the plan will be."""
        snapshot = cluster.snapshot
        until_s = cluster.now_s + _AVOID_S
        late: list[Evidence] = []
        states: dict[int, TrainerState] = {}
        for view in cluster.views:
            nodes = late_nodes(view, snapshot)
            if nodes and view.gpus:  # other trainers' elements may still fit there
                states[view.array] = refuse(view.state, nodes, until_s)
            user = view.trainer.user if view.gpus else ""
            late += (Evidence(node, user, view.array, LATE, until_s) for node in nodes)
        cluster = replace(cluster, bad=(*cluster.bad, *late))
        draft = _Draft(cluster)
        draft.end((), states)
        self._end_elements(draft)
        self._make_headroom(draft)
        self._judge(draft)
        out = out_of_node_hours(draft.cluster.views, self.history.totals, cluster.now_s)
        draft.end((), out)
        return draft

    def _without_plan(self, draft: _Draft) -> tuple[Decision, Callable[..., Problem]]:
        """Return the decision so far, and a function that builds the planning problem."""
        cluster, settings = draft.cluster, self.settings
        bars = tuple(bars_for_all(cluster, settings))
        off = nodes_off(bars)
        every = free_units(cluster)
        idle = {node: units for node, units in every.items() if node not in off}
        free = by_then = growable(idle, cluster, settings)
        eligible = eligibility(cluster.views, cluster.snapshot)
        unused = cluster.snapshot.powered_down.union(every)
        alone = {one.why: len(one.nodes & unused) for one in bars}
        alone["kept for ordinary jobs"] = len(idle.keys() - free.keys())
        hardware = hardware_of(cluster.snapshot, settings)
        if any(one.ours for view in cluster.views for _, one in view.within(*VACATES)):
            by_then = growable(free_units(cluster, off, soon=True), cluster, settings)
        known = by_then, self._objective, self.performance, hardware, eligible
        build = partial(
            problem_of,
            cluster,
            *known,
            deadline_share=settings.deadline_share,
            cross_switch=settings.cross_switch,
        )
        shown = bars_on((*bars, *bars_for_growth(cluster, settings), *eligible.bars), unused)
        decision = Decision(
            *((), draft.states, cluster.bad, free),
            left_alone=alone,
            bars=tuple(shown),
            stuck=eligible.stuck,
            as_they_come=draft.as_they_come,
        )
        return decision, build

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

        for decide in (end_asked, end_cut, end_mute, drain, off, end_too_few, keep):
            views = (view for view in draft.cluster.views if not view.over)
            draft.end(self._of_each(views, decide))

    def _make_headroom(self, draft: _Draft) -> None:
        """Empty nodes that ordinary jobs need."""
        cluster = draft.cluster
        if cluster.snapshot.queue.asking or (cluster.next_jobs and cluster.views):
            room = headroom(cluster)
            draft.cluster, draft.as_they_come = replace(cluster, kept=room.kept), room.at_once
            if room.at_once or cluster.now_s >= cluster.forecast.due_s - cluster.lead_s:
                why = "an ordinary job is expected there"
                draft.end(self._of_each(cluster.views, partial(end, these=room.elements, why=why)))
        if reserve := self.settings.reserve:
            draft.end(refill(self._free(draft.cluster), draft.cluster, reserve))

    def _judge(self, draft: _Draft) -> None:
        """End elements on nodes that may be bad, and give up trainers that fail everywhere."""
        cluster, settings = draft.cluster, self.settings
        if not any(view.state.failing for view in cluster.views):
            return
        free = frozenset(growable(self._free(cluster), cluster, settings))
        verdict = judge(cluster, free, settings)
        draft.cluster = replace(cluster, bad=verdict.bad)
        draft.end(verdict.leaving, verdict.states)

    def _free(self, cluster: ClusterView) -> dict[str, int]:
        return free_units(cluster, nodes_off(bars_for_all(cluster, self.settings)))


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
