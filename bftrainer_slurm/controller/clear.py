"""Which nodes in holes are left to ordinary jobs all the same: new ones, and a reserve. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from bftrainer_slurm.controller.actions import Shrink
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.view import TrainerView
from bftrainer_slurm.model import ElementId, ElementState


def keep_clear(
    free: frozenset[str],
    since_s: Mapping[str, float],
    life_s: Mapping[str, float],
    now_s: float,
    settings: Settings,
) -> frozenset[str]:
    """Return the free nodes that trainers may grow onto.

    Nodes in holes for less than ``min_idle_s`` (``since_s`` says since when) are not among them,
    nor so many as the reserve has: first those that are expected to be wanted soonest
    (``life_s``: in how many seconds).
    """
    settled = [node for node in free if now_s - since_s.get(node, now_s) >= settings.min_idle_s]
    short = max(0, settings.reserve_nodes - (len(free) - len(settled)))
    if short:
        settled = _soonest_wanted(settled, life_s)
    return frozenset(settled[short:])


def refill(
    free: frozenset[str],
    views: Sequence[TrainerView],
    life_s: Mapping[str, float],
    settings: Settings,
) -> list[Shrink]:
    """Return what trainers give up where ordinary jobs have taken nodes of the reserve.

    First the nodes that are wanted soonest, and no trainer goes below its least size for it. Nodes
    that elements are leaving are waited for.
    """
    leaving = sum(1 for view in views for _ in view.with_state(ElementState.ENDING))
    missing = settings.reserve_nodes - len(free) - leaving
    left = {view.array: len(view.placed) - view.trainer.record.min_nodes for view in views}
    given: dict[int, list[ElementId]] = {}
    held = _running(views)
    for node in _soonest_wanted(held, life_s):
        element = held[node]
        if missing > 0 and left[element.array] > 0:
            missing -= 1
            left[element.array] -= 1
            given.setdefault(element.array, []).append(element)
    return [
        Shrink(tuple(elements), "its node is kept for ordinary jobs") for elements in given.values()
    ]


def _running(views: Sequence[TrainerView]) -> dict[str, ElementId]:
    """Return the running elements by their nodes."""
    running = {element.id for view in views for element in view.with_state(ElementState.RUNNING)}
    return {
        node: element
        for view in views
        for node, element in view.placed.items()
        if element in running
    }


def _soonest_wanted(nodes: Iterable[str], life_s: Mapping[str, float]) -> list[str]:
    return sorted(nodes, key=lambda node: (life_s.get(node, math.inf), node))
