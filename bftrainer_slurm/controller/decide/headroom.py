"""Which nodes in holes are left to ordinary jobs: new ones, wanted ones, and a reserve. Pure.

While a job waits that the main scheduler cannot start, Slurm starts elements in backfill passes
only, and there after all ordinary jobs: a node that no pass has seen idle needs no gate of ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from bftrainer_slurm.controller.decide.actions import Shrink
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.element import Phase
from bftrainer_slurm.controller.state.picture import Picture
from bftrainer_slurm.model import ElementId


def growable(
    free: frozenset[str], picture: Picture, settings: Settings, kept: frozenset[str] = frozenset()
) -> frozenset[str]:
    """Return the free nodes that trainers may grow onto.

    Not among them are nodes ``kept`` for jobs, those in holes for less than ``min_idle_s``, and so
    many as the reserve has, first those that are expected to be wanted soonest.
    """
    now_s, since_s = picture.now_s, picture.since_s
    settled = [
        node for node in free - kept if now_s - since_s.get(node, now_s) >= settings.min_idle_s
    ]
    short = max(0, picture.reserve - (len(free) - len(settled)))
    if short:
        settled = _soonest_wanted(settled, picture.life_s)
    return frozenset(settled[short:])


def refill(free: frozenset[str], picture: Picture) -> list[Shrink]:
    """Return what trainers give up where ordinary jobs have taken nodes of the reserve.

    First the nodes that are wanted soonest, and no trainer goes below its least size for it. Nodes
    that elements are leaving are waited for.
    """
    views = picture.views
    leaving = sum(len(view.ids(Phase.LEAVING, Phase.ENDING)) for view in views)
    missing = picture.reserve - len(free) - leaving
    left = {view.array: len(view.placed) - view.trainer.record.min_nodes for view in views}
    given: dict[int, list[ElementId]] = {}
    held = {node: view.placed[node] for view in views for node in view.running()}
    for node in _soonest_wanted(held, picture.life_s):
        element = held[node]
        if missing > 0 and left[element.array] > 0:
            missing -= 1
            left[element.array] -= 1
            given.setdefault(element.array, []).append(element)
    return [
        Shrink(tuple(elements), "its node is kept for ordinary jobs") for elements in given.values()
    ]


def _soonest_wanted(nodes: Iterable[str], life_s: Mapping[str, float]) -> list[str]:
    return sorted(nodes, key=lambda node: (life_s.get(node, math.inf), node))
