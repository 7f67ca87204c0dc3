"""The decision of one turn: upkeep, who has to leave, the plan, and the moves towards it.

Talks to nobody but the planner. What was asked last is kept, so that a plan stands while it can.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from bftrainer_slurm.controller.decide.actions import Action, Shrink, Trim
from bftrainer_slurm.controller.decide.available import available_nodes, hardware_of, left_alone
from bftrainer_slurm.controller.decide.eligibility import Eligibility, eligibility
from bftrainer_slurm.controller.decide.failures import judge
from bftrainer_slurm.controller.decide.headroom import growable, refill
from bftrainer_slurm.controller.decide.job_table import excess
from bftrainer_slurm.controller.decide.problem import (
    Outlook,
    problem_of,
    same_question,
    stops_a_trainer,
)
from bftrainer_slurm.controller.decide.reconcile import (
    hold_reclaimed,
    keep_up,
    late_nodes,
    leave_draining,
    patience,
    towards,
)
from bftrainer_slurm.controller.decide.time_limits import (
    Claims,
    claims_of,
    keep_limits,
    limits_at_start,
)
from bftrainer_slurm.controller.decide.vacate import vacate, wanted
from bftrainer_slurm.controller.faults import Faults
from bftrainer_slurm.controller.observe.schedule import LEAD_S
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.picture import Picture
from bftrainer_slurm.controller.state.profile import Appraiser
from bftrainer_slurm.controller.state.trainer import TrainerState
from bftrainer_slurm.controller.state.view import TrainerView, without
from bftrainer_slurm.model import NodeState
from bftrainer_slurm.planner.instance import document_of
from bftrainer_slurm.planner.objectives import find
from bftrainer_slurm.planner.problem import Plan, PlanMaker, Problem

logger = logging.getLogger(__name__)

_AVOID_S = 60.0  # a node on which an element did not start, though nobody has it
_GREEDY_S = 60.0  # so long a plan stands that was made without the solver: a try may take seconds


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done, and what the next decision has to know.

    ``free`` are nodes that trainers may grow onto, ``avoid`` says until when others are left alone,
    ``left_alone`` how many idle nodes are, by why; ``states`` are of the trainers (by array) that
    were judged. ``problem`` is what the ``plan`` was made for, at ``planned_s`` (Unix seconds).
    ``trouble``: why there is no plan.
    """

    actions: tuple[Action, ...] = ()
    states: Mapping[int, TrainerState] = field(default_factory=dict)
    avoid: Mapping[str, float] = field(default_factory=dict)
    free: frozenset[str] = frozenset()
    left_alone: Mapping[str, int] = field(default_factory=dict)
    eligible: Eligibility = field(default_factory=Eligibility)
    plan: Plan | None = None
    problem: Problem | None = None
    planned_s: float = 0.0
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class _Ready:
    """What a plan is made for: the picture without what leaves, and how that is made to leave."""

    picture: Picture
    leaving: tuple[Action, ...]
    states: Mapping[int, TrainerState]
    claims: Claims
    free: frozenset[str]
    left_alone: Mapping[str, int]
    outlook: Outlook
    problem: Problem


class Decider:
    """Decides turn after turn."""

    def __init__(
        self,
        planner: PlanMaker,
        appraiser: Appraiser,
        history: History,
        settings: Settings,
        faults: Faults,
    ) -> None:
        self._planner = planner
        self._appraiser = appraiser
        self._history = history
        self._settings = settings
        self._faults = faults
        self._objective = find(settings.objective)
        self._asked: Problem | None = None
        self._plan: Plan | None = None
        self._problem: Problem | None = None
        self._planned_s = 0.0

    def decide(self, picture: Picture) -> Decision:
        """Return what is to be done now; a trainer at fault gets its upkeep, and nothing else."""
        everybody = picture.views
        picture = _apart(picture, self._faults.why)
        try:
            return self._decide(picture, everybody)
        except Exception:
            for view in picture.views:
                with self._faults.of(view.array):
                    self._prepare(replace(picture, views=(view,)))
            if not self._faults.why.keys() & {view.array for view in picture.views}:
                raise
            return self._decide(_apart(picture, self._faults.why), everybody)

    def _decide(self, picture: Picture, everybody: tuple[TrainerView, ...]) -> Decision:
        settings, now_s = self._settings, picture.now_s
        ready = self._prepare(picture)
        plan, trouble = self._planned(ready)
        moves: list[Action] = []
        if plan is not None:
            nodes = picture.snapshot.nodes_of(settings.partition)
            limits = partial(limits_at_start, claims=ready.claims, now_s=now_s, settings=settings)
            moves = self._of_each(
                ready.picture.views, lambda view: towards(plan, view, ready.free, nodes, limits)
            )
        everybody = tuple(_judged(view, ready.states) for view in everybody)
        patience_s = patience(settings, picture.snapshot.configuration)
        upkeep = self._of_each(everybody, lambda view: keep_up(view, now_s, patience_s))
        held = self._of_each(everybody, lambda view: hold_reclaimed(view, moves))
        actions = (*upkeep, *ready.leaving, *moves, *held)
        return Decision(
            actions,
            ready.states,
            ready.picture.avoid,
            ready.free,
            ready.left_alone,
            ready.outlook.eligible,
            plan,
            self._problem,
            self._planned_s,
            trouble,
        )

    def _prepare(self, picture: Picture) -> _Ready:
        """Decide all that has to be known before a plan."""
        settings, now_s = self._settings, picture.now_s
        patience_s = patience(settings, picture.snapshot.configuration)
        late = [node for view in picture.views for node in late_nodes(view, now_s, patience_s)]
        picture = replace(picture, avoid={**picture.avoid, **dict.fromkeys(late, now_s + _AVOID_S)})
        claims = claims_of(picture.snapshot)
        picture, leaving = self._leave(picture, claims)
        kept, picture, given = self._give(picture)
        picture, failing, states = self._judge(picture, kept)
        leaving = [*leaving, *given, *failing]
        picture, trims, refused = self._make_room(picture)
        available = available_nodes(picture, settings)
        free = growable(available, picture, settings, kept)
        idle = {why: len(nodes) for why, nodes in left_alone(picture, settings).items()}
        idle["kept for ordinary jobs"] = len(available - free)
        eligible = eligibility(picture.views, picture.snapshot, settings)
        hardware = hardware_of(picture.snapshot, settings)
        outlook = Outlook(self._objective, self._appraiser, hardware, eligible)
        problem = problem_of(picture, free, outlook)
        states = {**states, **refused}
        leaving = [*leaving, *trims]
        return _Ready(picture, tuple(leaving), states, claims, free, idle, outlook, problem)

    def _of_each(
        self, views: Iterable[TrainerView], decide: Callable[[TrainerView], Sequence[Action]]
    ) -> list[Action]:
        actions: list[Action] = []
        for view in views:
            with self._faults.of(view.array):
                actions += decide(view)
        return actions

    def _make_room(
        self, picture: Picture
    ) -> tuple[Picture, tuple[Trim, ...], dict[int, TrainerState]]:
        """Give up what slurmctld's job table has no room for; the picture is without it."""
        trainers = [view.trainer for view in picture.views if not view.over]
        max_jobs = picture.snapshot.configuration.max_jobs
        more = excess(trainers, max_jobs, self._settings, self._has_begun)
        gone = {id_ for trim in more.trims for id_ in trim.elements}
        refused = {
            view.array: replace(view.state, over=more.why, over_since_s=picture.now_s)
            for view in picture.views
            if view.array in more.refused
        }
        views = (_judged(view, refused) for view in picture.views)
        left = tuple(
            replace(view, spare=tuple(id_ for id_ in view.spare if id_ not in gone))
            for view in views
        )
        return replace(picture, views=left) if gone or refused else picture, more.trims, refused

    def _has_begun(self, array: int) -> bool:
        """Whether a trainer has ever had a node; where the history does not tell, it has."""
        return self._history.trouble is not None or self._history.tally(array).grew > 0

    def _leave(self, picture: Picture, claims: Claims) -> tuple[Picture, list[Action]]:
        """End what may not go on where it is; the picture is without it."""
        settings, nodes, now_s = self._settings, picture.snapshot.nodes, picture.now_s
        draining = {node.name for node in nodes if node.state is NodeState.DRAINING}

        def keep(view: TrainerView) -> Sequence[Action]:
            return keep_limits(view.up(), view.trainer.record.minutes, claims, now_s, settings)

        leaving: list[Action] = []
        for decide in (lambda view: leave_draining(view, draining), keep):
            more = self._of_each((view for view in picture.views if not view.over), decide)
            picture, leaving = _without(picture, more), [*leaving, *more]
        return picture, leaving

    def _give(self, picture: Picture) -> tuple[frozenset[str], Picture, list[Shrink]]:
        """Give ordinary jobs what they are to find idle; return those nodes too."""
        settings, given = self._settings, list[Shrink]()
        want = wanted(picture, settings.partition)
        kept = want.idle
        if picture.now_s >= picture.judgement.due_s - LEAD_S:
            kept, given = kept | want.leave, vacate(picture.views, want.leave)
            picture = _without(picture, given)
        if picture.reserve:
            more = refill(available_nodes(picture, settings), picture)
            picture, given = _without(picture, more), [*given, *more]
        return kept, picture, given

    def _judge(
        self, picture: Picture, kept: frozenset[str]
    ) -> tuple[Picture, Sequence[Action], Mapping[int, TrainerState]]:
        """End what has failed too often where it is, or at all; the picture is without it."""
        if not any(view.state.failing for view in picture.views):
            return picture, (), {}
        settings = self._settings
        free = growable(available_nodes(picture, settings), picture, settings, kept)
        verdict = judge(picture, free, settings)
        judged = tuple(_judged(view, verdict.states) for view in picture.views)
        picture = replace(picture, views=judged, avoid=verdict.avoid)
        return _without(picture, verdict.leaving), verdict.leaving, verdict.states

    def _planned(self, ready: _Ready) -> tuple[Plan | None, str | None]:
        """Return a plan, or None and why none can be made: then nobody moves."""
        try:
            return self._plan_for(ready), None
        except Exception as error:
            logger.exception("no plan")
            self._asked = None
            return None, f"no plan: {type(error).__name__}: {error}"

    def _plan_for(self, ready: _Ready) -> Plan:
        """Return the last plan if it stands, else a new one; no trainer stops for exploration."""
        problem, last = ready.problem, self._plan
        asked, self._asked = self._asked, problem
        fresh = ready.picture.now_s < self._planned_s + _GREEDY_S
        if (
            last is not None
            and (fresh or last.status != "greedy")
            and same_question(problem, asked)
        ):
            return last
        plan = self._planner.plan(problem)
        if stops_a_trainer(problem, plan):
            other = problem_of(ready.picture, ready.free, ready.outlook, exploring=False)
            if other != problem:
                problem, plan = other, self._planner.plan(other)
        self._plan, self._problem, self._planned_s = plan, problem, ready.picture.now_s
        pool, used = len(problem.pool), sum(map(len, plan.assignment.values()))
        now_s = ready.picture.now_s
        self._history.add_plan(now_s, pool, used, plan.objective, plan.status, plan.solve_s)
        self._history.add_problem(now_s, partial(document_of, problem))
        return plan


def _apart(picture: Picture, at_fault: Container[int]) -> Picture:
    """Return the picture without the trainers that are at fault, and without their nodes."""
    theirs = [view for view in picture.views if view.array in at_fault]
    if not theirs:
        return picture
    nodes = {
        record.node for view in theirs for record in view.state.elements.values() if record.node
    }
    views = tuple(view for view in picture.views if view.array not in at_fault)
    return replace(picture, views=views, out_of_reach=picture.out_of_reach | nodes)


def _judged(view: TrainerView, states: Mapping[int, TrainerState]) -> TrainerView:
    return replace(view, state=states[view.array]) if view.array in states else view


def _without(picture: Picture, leaving: Iterable[Action]) -> Picture:
    """Return the picture as if the elements that these actions end had left already."""
    gone = [id_ for action in leaving if isinstance(action, Shrink) for id_ in action.elements]
    if not gone:
        return picture
    return replace(picture, views=tuple(without(view, gone) for view in picture.views))
