"""Deadlines: the nodes that a trainer needs to be on time count more than all that others gain.

After HyperSched (Liaw et al., SoCC 2019). What a trainer has beyond these nodes counts as usual.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.objectives.base import Facts

_ABOVE = 2.0  # times the most that a node brings to anybody


def nodes_needed(one: Facts) -> int:
    """Return the fewest nodes on which it meets its deadline; 0: it has none, or cannot."""
    if one.deadline is None:
        return 0
    least, rate, curve = one.min_nodes, one.deadline.rate, one.curve
    if curve.at(least) >= rate:
        return least
    for (m, before), (n, after) in pairwise(zip(curve.nodes, curve.values, strict=True)):
        if n > least and before < rate <= after:
            need = m + math.ceil((rate - before) / (after - before) * (n - m))
            return need if need <= one.max_nodes else 0
    return 0


def urgent(trainers: Sequence[Facts], most: float) -> dict[int, int]:
    """Return the trainers whose deadlines count, by index, and the nodes that each needs.

    The earliest deadline comes first. Together they need no more than ``most`` nodes: one that does
    not fit any more, and one that cannot be met, count as none.
    """
    found: dict[int, int] = {}
    ordered = sorted(
        (one.deadline.due_s, index) for index, one in enumerate(trainers) if one.deadline
    )
    for _, index in ordered:
        need = nodes_needed(trainers[index])
        if need and need * trainers[index].share <= most:
            found[index] = need
            most -= need * trainers[index].share
    return found


def with_deadlines(
    curves: Sequence[ThroughputCurve], needs: Mapping[int, int]
) -> list[ThroughputCurve]:
    """Return the objective curves; those that are ``urgent`` rise steeply up to what they need.

    A node up to there is worth twice the most that one brings to anybody; with an earlier deadline
    more, so that the earliest is met first.
    """
    steepest = max(map(_steepest, curves), default=0.0)
    drawn = list(curves)
    for place, index in enumerate(reversed(needs)):  # the latest first
        drawn[index] = _bent(curves[index], needs[index], _ABOVE * (1 + place) * steepest)
    return drawn


def _bent(curve: ThroughputCurve, need: int, worth: float) -> ThroughputCurve:
    """Return the curve with ``worth`` more for each node up to ``need``, its only new bend."""
    sizes = sorted({*curve.nodes, need})
    values = [curve.at(size) + worth * min(size, need) for size in sizes]
    return ThroughputCurve(tuple(sizes), tuple(values))


def _steepest(curve: ThroughputCurve) -> float:
    points = list(zip(curve.nodes, curve.values, strict=True))
    steps = [(after - before) / (n - m) for (m, before), (n, after) in pairwise(points)]
    means = [value / size for size, value in points if size]
    return max([*steps, *means], default=0.0)
