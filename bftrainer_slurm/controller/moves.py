"""From views to a planning problem, and from its plan to the moves that reach it. Pure."""

from __future__ import annotations

from dataclasses import replace

from bftrainer_slurm.controller.actions import Action, Grow, Hold, Shrink
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.view import Memory, Release, TrainerView
from bftrainer_slurm.model import ElementState, ThroughputCurve, Trainer
from bftrainer_slurm.planner.problem import Contender, Plan, Problem

# Until a trainer's own curve is learnt: Amdahl's law with 5 % that does not scale.
_SERIAL_SHARE = 0.05
# Measured with stock c10d, tuned; DESIGN.md, "The elastic runtime".
RESCALE_UP_S = 8.0
RESCALE_DOWN_S = 7.0


def problem_of(
    views: tuple[TrainerView, ...],
    free: frozenset[str],
    memory: Memory,
    now_s: float,
    settings: Settings,
) -> Problem:
    """Return the planning problem: every trainer that can use nodes, over all nodes to be had."""
    contenders = tuple(
        Contender(
            key=str(view.array),
            min_nodes=view.trainer.record.min_nodes,
            max_nodes=min(view.trainer.record.max_nodes, len(view.placed) + len(view.spare)),
            current=frozenset(view.placed),
            curve=prior_curve(view.trainer),
            rescale_up_s=RESCALE_UP_S,
            rescale_down_s=RESCALE_DOWN_S,
        )
        for view in views
        if _can_use_nodes(view, memory, now_s)
    )
    held = frozenset(node for contender in contenders for node in contender.current)
    return Problem(free | held, settings.forward_time_s, contenders)


def prior_curve(trainer: Trainer) -> ThroughputCurve:
    """Return what is assumed of a trainer: speed-up over one node, times its weight."""
    counts = [0]
    while counts[-1] < trainer.record.max_nodes:
        counts.append(min(2 * counts[-1] or 1, trainer.record.max_nodes))
    weight = trainer.record.spec.weight
    speed_ups = [weight * n / (1 + _SERIAL_SHARE * (n - 1)) if n else 0.0 for n in counts]
    return ThroughputCurve(tuple(counts), tuple(speed_ups))


def moves_of(
    plan: Plan, views: tuple[TrainerView, ...], free: frozenset[str], now_s: float, memory: Memory
) -> tuple[list[Action], Memory]:
    """Return the moves towards the plan that can be made now.

    A node that another trainer still has is given on at a later turn, when it is idle.
    """
    actions: list[Action] = []
    releases = dict(memory.releases)
    for view in views:
        target = plan.assignment.get(str(view.array))
        if target is None:
            continue
        actions += _leave(view, frozenset(view.placed) - target)
        spare = iter(view.spare)
        for node in sorted(target & free):
            element = next(spare, None)
            if element is None:
                break
            actions.append(Grow(element, node, not view.live, view.trainer.record.minutes))
            releases[element] = Release(node, now_s)
    return actions, replace(memory, releases=releases)


def hold_unplaced(view: TrainerView, actions: list[Action]) -> list[Action]:
    """Hold the reclaimed elements that no move uses, before Slurm starts them by itself."""
    used = {action.element for action in actions if isinstance(action, Grow)}
    left = tuple(
        element.id for element in view.with_state(ElementState.DELAYED) if element.id not in used
    )
    return [Hold(left)] if left else []


def _can_use_nodes(view: TrainerView, memory: Memory, now_s: float) -> bool:
    if view.finishing or view.array in memory.given_up:
        return False
    if memory.patient_until.get(view.array, 0.0) > now_s:
        return False  # it has just failed
    return len(view.placed) + len(view.spare) >= view.trainer.record.min_nodes


def _leave(view: TrainerView, nodes: frozenset[str]) -> list[Action]:
    """End the elements on these nodes; those that have not started yet are only held."""
    running = {element.id for element in view.with_state(ElementState.RUNNING)}
    leaving = sorted(view.placed[node] for node in nodes)
    started = tuple(element for element in leaving if element in running)
    waiting = tuple(element for element in leaving if element not in running)
    actions: list[Action] = []
    if started:
        actions.append(Shrink(started, "the plan gives its nodes to others"))
    if waiting:
        actions.append(Hold(waiting))
    return actions
