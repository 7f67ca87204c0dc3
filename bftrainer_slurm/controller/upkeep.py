"""What elements need whatever the plan says: held again, lengthened, cleared away.

Pure: an observation and the memory in, actions and the next memory out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from bftrainer_slurm.controller.actions import Action, Cancel, Hold, Lengthen, Shrink
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.view import Memory, Observation, Release, TrainerView
from bftrainer_slurm.model import Element, ElementId, ElementState, NodeState

Value = TypeVar("Value")

_AVOID_S = 60.0
_RECLAIM_S = 5.0
_FINISH_TIMEOUT_S = 300.0  # an elastic agent waits this long at its exit barrier
_LENGTHEN_MINUTES = 60


def remember_starts(views: tuple[TrainerView, ...], memory: Memory, now_s: float) -> Memory:
    """Forget what is over and who is gone; adopt pending elements that nobody remembers."""
    there = {view.array for view in views}
    releases = {
        element.id: memory.releases.get(element.id, Release(element.node, now_s))
        for view in views
        for element in view.with_state(ElementState.PENDING)
    }
    avoid = {node: until_s for node, until_s in memory.avoid.items() if until_s > now_s}
    return replace(
        memory,
        releases=releases,
        avoid=avoid,
        refused=_of(there, memory.refused),
        waits=_of(there, memory.waits),
        finishing_since=_of(there, memory.finishing_since),
        failing=_of(there, memory.failing),
        patient_until=_of(there, memory.patient_until),
        given_up=_of(there, memory.given_up),
        cancelled_s=_of(there, memory.cancelled_s),
    )


def overdue(
    views: tuple[TrainerView, ...],
    taken: frozenset[str],
    memory: Memory,
    now_s: float,
    settings: Settings,
) -> tuple[list[Action], Memory]:
    """Hold elements that did not start: in time, or before an ordinary job took their node.

    ``taken`` are the nodes of ordinary jobs. A node that an element could not start on though
    nobody has it is left alone for a minute.
    """
    late = {
        element: release
        for element, release in memory.releases.items()
        if now_s - release.time_s > settings.start_timeout_s or release.node in taken
    }
    actions: list[Action] = [
        Hold(mine)
        for view in views
        if (mine := tuple(element for element in late if element.array == view.array))
    ]
    nodes = {
        release.node: now_s + _AVOID_S
        for release in late.values()
        if release.node and release.node not in taken
    }
    kept = {element: rest for element, rest in memory.releases.items() if element not in late}
    return actions, replace(memory, releases=kept, avoid={**memory.avoid, **nodes})


def spare_reclaimed(
    before: tuple[TrainerView, ...], views: tuple[TrainerView, ...], memory: Memory, now_s: float
) -> Memory:
    """Leave the nodes alone for a moment that were reclaimed since the last look.

    Slurm ends our element first, and only then gives the node to the job that needs it; until
    then the node looks idle.
    """
    had = {element: node for view in before for node, element in view.placed.items()}
    nodes = [
        had[element.id]
        for view in views
        for element in view.with_state(ElementState.DELAYED)
        if element.id in had
    ]
    return replace(memory, avoid={**memory.avoid, **dict.fromkeys(nodes, now_s + _RECLAIM_S)})


def near_limit(view: TrainerView, now_s: float, settings: Settings) -> list[Action]:
    """Lengthen, or requeue and hold, the elements that Slurm would end soon."""
    lengthened: dict[int, list[ElementId]] = {}
    requeued: list[ElementId] = []
    for element in view.with_state(ElementState.RUNNING):
        if element.limit_end_s is None or element.limit_end_s - now_s > settings.limit_margin_s:
            continue
        minutes = _longer_limit(element, view.trainer.record.minutes, now_s, settings)
        if settings.operator and minutes is not None:
            lengthened.setdefault(minutes, []).append(element.id)
        else:
            requeued.append(element.id)
    actions: list[Action] = [
        Lengthen(tuple(elements), minutes) for minutes, elements in lengthened.items()
    ]
    if requeued:
        actions.append(Shrink(tuple(requeued), "near its time limit"))
    return actions


def leave_draining(views: tuple[TrainerView, ...], observation: Observation) -> list[Shrink]:
    """End the elements on nodes that an admin waits for: elements are lengthened, jobs end."""
    draining = {one.name for one in observation.nodes if one.state is NodeState.DRAINING}
    leaving = (
        tuple(one.id for one in view.with_state(ElementState.RUNNING) if one.node in draining)
        for view in views
    )
    return [Shrink(elements, "its node is to be empty") for elements in leaving if elements]


def clear_finished(view: TrainerView, memory: Memory, now_s: float) -> tuple[list[Action], Memory]:
    """Cancel the rest of a trainer once its elements that still run had time to end."""
    since_s = memory.finishing_since.get(view.array, now_s)
    memory = replace(memory, finishing_since={**memory.finishing_since, view.array: since_s})
    unfinished = view.live and now_s - since_s < _FINISH_TIMEOUT_S
    if unfinished:
        delayed = tuple(element.id for element in view.with_state(ElementState.DELAYED))
        return ([Hold(delayed)] if delayed else []), memory
    return ([Cancel(view.array, "finished")] if view.spare or view.placed else []), memory


def _of(arrays: set[int], values: Mapping[int, Value]) -> dict[int, Value]:
    return {array: value for array, value in values.items() if array in arrays}


def _longer_limit(
    element: Element, wanted_minutes: int | None, now_s: float, settings: Settings
) -> int | None:
    """Minutes since its start to lengthen to, or None where the user's own limit is reached."""
    started_s = element.start_s if element.start_s is not None else now_s
    minutes = math.ceil((now_s - started_s) / 60) + _LENGTHEN_MINUTES
    if wanted_minutes is None:
        return minutes
    still_s = started_s + 60 * wanted_minutes - now_s
    return min(minutes, wanted_minutes) if still_s > settings.limit_margin_s else None
