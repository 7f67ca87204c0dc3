"""Deadlines: the nodes that a trainer needs to be on time count more than all that others gain.

After HyperSched (Liaw et al., SoCC 2019). What a trainer has beyond these nodes counts as usual.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.objectives.base import Facts

_ABOVE = 2.0  # times the most that a node brings to anybody
_ROUNDING = 1e-9  # of a node


@dataclass(frozen=True, slots=True)
class Need:
    """The fewest ``nodes`` on which a trainer meets its deadline; 0: it cannot.

    ``left`` is how many there still are for it of those that deadlines may have, if that is too
    few; None: they suffice.
    """

    nodes: int
    left: int | None = None

    @property
    def counts(self) -> bool:
        """Whether these nodes count before others."""
        return self.nodes > 0 and self.left is None


def nodes_needed(one: Facts, rate: float) -> int:
    """Return the fewest nodes on which it makes so many samples/s; 0: on none."""
    least, curve = one.min_nodes, one.curve
    if curve.at(least) >= rate:
        return least
    for (m, before), (n, after) in pairwise(zip(curve.nodes, curve.values, strict=True)):
        if n > least and before < rate <= after:
            need = m + math.ceil((rate - before) / (after - before) * (n - m))
            return need if need <= one.max_nodes else 0
    return 0


def needs_of(trainers: Sequence[Facts], most: float) -> dict[int, Need]:
    """Return what the trainers with a deadline need, by index; the earliest deadline comes first.

    Those that count need no more than ``most`` nodes together: one that does not fit any more, and
    one that cannot be met, take none of them.
    """
    found: dict[int, Need] = {}
    due = [(one.deadline, index) for index, one in enumerate(trainers) if one.deadline]
    for deadline, index in sorted(due, key=lambda one: (one[0].due_s, one[1])):
        share = trainers[index].share
        need, left = nodes_needed(trainers[index], deadline.rate), int(most / share + _ROUNDING)
        if need <= left:
            most -= need * share
        found[index] = Need(need, None if need <= left else left)
    return found


def with_deadlines(
    curves: Sequence[ThroughputCurve], needs: Mapping[int, Need]
) -> list[ThroughputCurve]:
    """Return the objective curves; those whose needs count rise steeply up to what they need.

    A node up to there is worth twice the most that one brings to anybody; with an earlier deadline
    more, so that the earliest is met first.
    """
    steepest = max(map(_steepest, curves), default=0.0)
    drawn = list(curves)
    counting = [index for index, need in needs.items() if need.counts]
    for place, index in enumerate(reversed(counting)):  # the latest first
        drawn[index] = _bent(curves[index], needs[index].nodes, _ABOVE * (1 + place) * steepest)
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
