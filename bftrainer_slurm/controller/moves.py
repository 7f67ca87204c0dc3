"""From a plan to the moves that can be made towards it now. Pure."""

from __future__ import annotations

from dataclasses import replace

from bftrainer_slurm.controller.actions import Action, Grow, Hold, Shrink
from bftrainer_slurm.controller.view import Memory, Release, TrainerView
from bftrainer_slurm.model import ElementState
from bftrainer_slurm.planner.problem import Plan


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
