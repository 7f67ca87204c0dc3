"""Which nodes in holes are left to ordinary jobs all the same: new ones, and a reserve. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from bftrainer_slurm.controller.settings import Settings


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
        settled.sort(key=lambda node: (life_s.get(node, math.inf), node))
    return frozenset(settled[short:])
