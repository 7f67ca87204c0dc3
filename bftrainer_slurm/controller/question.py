"""From the views of the trainers to the planning problem. Pure."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Set
from dataclasses import dataclass, field, replace

from bftrainer_slurm.controller.appraisal import Appraisal, Appraiser, RescaleCosts
from bftrainer_slurm.controller.limits import Limits
from bftrainer_slurm.controller.saving import spares_of, with_stand_ins
from bftrainer_slurm.controller.view import Memory, TrainerView
from bftrainer_slurm.model import ElementState, ThroughputCurve
from bftrainer_slurm.planner.classes import NodeClass
from bftrainer_slurm.planner.objectives import Facts, Objective, curves_of
from bftrainer_slurm.planner.problem import Contender, Costs, Plan, Problem

# A start takes its time too: else a trainer loses its last node to one that would begin there, as
# soon as it stands still for a moment. At most half of the forward time, so that a node that
# nobody else wants is worth a start in any case.
_MOST_OF_FORWARD = 0.5


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a plan is made with beside the trainers: how far it looks, what holes will last."""

    objective: Objective
    appraiser: Appraiser
    forward_time_s: float
    life_s: Mapping[str, float] = field(default_factory=dict)
    hardware: Mapping[str, str] = field(default_factory=dict)  # by node, where kinds are told apart
    limits: Limits = field(default_factory=Limits)
    grown_pool: float = 0.0  # nodes there usually are when others have just come


def problem_of(
    views: tuple[TrainerView, ...],
    free: frozenset[str],
    memory: Memory,
    now_s: float,
    outlook: Outlook,
    exploring: bool = True,
) -> Problem:
    """Return the planning problem: every trainer that can use nodes, over all nodes to be had.

    Trainers may have curves with some hope in them, unless nobody is to explore.
    """
    stuck = outlook.limits.stuck
    chosen = [view for view in views if _can_use_nodes(view, memory, now_s, stuck)]
    appraisals = outlook.appraiser.appraise(chosen, now_s)
    if not exploring:
        appraisals = [replace(one, curve=one.sober or one.curve) for one in appraisals]
    facts = [
        _facts(view, appraisal, memory, now_s)
        for view, appraisal in zip(chosen, appraisals, strict=True)
    ]
    curves = curves_of(outlook.objective, facts)
    held = frozenset(node for view in chosen for node in view.placed)
    pool = free | held
    barred = {view.array: outlook.limits.barred.get(view.array, frozenset()) for view in chosen}
    classes = _classes(pool, outlook.hardware, {a: out for a, out in barred.items() if out & pool})
    contenders = with_stand_ins(
        [
            replace(
                _contender(view, appraisal, curve, memory, now_s, outlook),
                barred=frozenset(one.name for one in classes if one.nodes & barred[view.array]),
            )
            for view, appraisal, curve in zip(chosen, appraisals, curves, strict=True)
        ]
    )
    starts_s = [appraisal.costs.start_s for appraisal in appraisals]
    return Problem(
        pool,
        outlook.forward_time_s,
        contenders,
        costs=Costs.PAUSE,
        life_s={node: life for node, life in outlook.life_s.items() if node in pool},
        classes=classes,
        spares=spares_of(contenders, starts_s, outlook.grown_pool),
    )


def _classes(
    pool: frozenset[str], hardware: Mapping[str, str], barred: Mapping[int, frozenset[str]]
) -> tuple[NodeClass, ...]:
    """Part the pool into nodes of one kind that the same trainers cannot have."""
    parts: dict[tuple[str, tuple[int, ...]], set[str]] = {}
    for node in pool if hardware or barred else ():
        kept_out = tuple(array for array, nodes in barred.items() if node in nodes)
        parts.setdefault((hardware.get(node, ""), kept_out), set()).add(node)
    return tuple(
        NodeClass(" not ".join([kind or "other", *map(str, kept_out)]), frozenset(names), kind)
        for (kind, kept_out), names in sorted(parts.items())
    )


def remember_changes(
    before: tuple[TrainerView, ...],
    views: tuple[TrainerView, ...],
    memory: Memory,
    now_s: float,
    appraiser: Appraiser,
) -> Memory:
    """Remember until when trainers stand still that have changed, and who has nodes now."""
    had = {view.array: view.placed.keys() for view in before}
    paused = {array: end_s for array, end_s in memory.paused_until.items() if end_s > now_s}
    trained = {view.array: memory.trained_s.get(view.array, 0.0) for view in views}
    for view in views:
        nodes, old = view.placed.keys(), had.get(view.array)
        if nodes:
            trained[view.array] = now_s
        if old and nodes and nodes != old:
            until_s = _paused_until_s(view, nodes - old, now_s, appraiser.costs(view))
            paused[view.array] = max(paused.get(view.array, 0.0), until_s)
    return replace(memory, paused_until=paused, trained_s=trained)


def _paused_until_s(
    view: TrainerView, joined: Set[str], now_s: float, costs: RescaleCosts
) -> float:
    """Until when it stands still that these nodes joined, or that others left.

    It may be some time before a node is seen; and one that came as soon as the first ones, from
    another trainer say, belongs to the start.
    """
    if not joined:
        return now_s + costs.down_s
    starts = {
        element.node: element.start_s
        for element in view.with_state(ElementState.RUNNING)
        if element.start_s is not None
    }
    joined_s = min(now_s, max((starts[node] for node in joined & starts.keys()), default=now_s))
    others = view.placed.keys() - joined
    if all(starts.get(node, -math.inf) >= joined_s for node in others):
        return now_s
    return joined_s + costs.up_s


def same_question(problem: Problem, other: Problem | None) -> bool:
    """Whether the plan for one problem still stands for another.

    It does as long as the same trainers want the same nodes: what has changed beside are the moves
    towards that plan, and what passes with time.
    """
    return other is not None and _wanted(problem) == _wanted(other)


def stops_a_trainer(problem: Problem, plan: Plan) -> bool:
    """Whether a plan takes all nodes of a trainer that has some."""
    return any(one.current and not plan.assignment[one.key] for one in problem.contenders)


def _wanted(problem: Problem) -> tuple[object, ...]:
    contenders = [
        (one.key, one.min_nodes, one.max_nodes, one.curve, one.barred) for one in problem.contenders
    ]
    return problem.pool, contenders, problem.classes


def _facts(view: TrainerView, appraisal: Appraisal, memory: Memory, now_s: float) -> Facts:
    record = view.trainer.record
    last_s = max(view.trainer.submit_s, memory.trained_s.get(view.array, 0.0))
    return Facts(
        curve=appraisal.curve,
        min_nodes=record.min_nodes,
        max_nodes=record.max_nodes,
        weight=record.spec.weight,
        user=view.trainer.user,
        nodes=len(view.placed),
        waited_s=0.0 if view.placed else max(0.0, now_s - last_s),
        done=appraisal.done,
    )


def _contender(
    view: TrainerView,
    appraisal: Appraisal,
    curve: ThroughputCurve,
    memory: Memory,
    now_s: float,
    outlook: Outlook,
) -> Contender:
    record = view.trainer.record
    stuck = view.array in outlook.limits.stuck
    costs = appraisal.costs
    start_s = min(costs.start_s, _MOST_OF_FORWARD * outlook.forward_time_s)
    return Contender(
        key=str(view.array),
        min_nodes=record.min_nodes,
        max_nodes=min(record.max_nodes, len(view.placed) + (0 if stuck else len(view.spare))),
        current=frozenset(view.placed),
        curve=curve,
        rescale_up_s=costs.up_s,
        rescale_down_s=costs.down_s,
        paused_s=max(0.0, memory.paused_until.get(view.array, 0.0) - now_s),
        start_cost=start_s * curve.at(record.min_nodes),
    )


def _can_use_nodes(view: TrainerView, memory: Memory, now_s: float, stuck: Container[int]) -> bool:
    if view.finishing or view.array in memory.given_up:
        return False
    if memory.patient_until.get(view.array, 0.0) > now_s:
        return False  # it has just failed
    spare = 0 if view.array in stuck else len(view.spare)
    return len(view.placed) + spare >= view.trainer.record.min_nodes
