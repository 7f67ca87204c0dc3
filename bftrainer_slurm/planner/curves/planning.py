"""Which curves a plan is made with: as fitted, and few raised where a look at more nodes may pay.

A plan that only believes its fits never learns what it does not try, and one that hopes everywhere
tries everything at once. So few are raised at a time, and only up to twice their nodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.curves.fit import Fit
from bftrainer_slurm.planner.objectives.base import scaled

# Chosen by scripts/bench-curves; docs/curves.md has what others give.
_HOPE = 2.0  # standard deviations; less does not outweigh the cost of rescaling
_TRAINERS_AN_EXPLORER = 20
_KNOWN = 0.08  # relative; what is known better needs no look
_PAYS_AFTER_S = 900.0  # a look costs two rescales, and the rest of the run repays it


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """A trainer to be planned: what is known of its curve, the nodes it has, the run time left.

    ``remaining_s`` is None where it is unknown.
    """

    fit: Fit
    nodes: int
    max_nodes: int
    remaining_s: float | None = None

    @property
    def doubt(self) -> float:
        """Relative uncertainty of what twice its nodes would bring; 0 where a look cannot pay."""
        if not self.fit.has_measured(self.nodes):
            return 0.0  # first see what it does where it is
        if self.remaining_s is not None and self.remaining_s < _PAYS_AFTER_S:
            return 0.0
        return self.fit.uncertainty(min(2 * self.nodes, self.max_nodes), above=self.nodes)


def planning_curves(trainers: Sequence[Standing]) -> list[ThroughputCurve]:
    """Return the throughput curves to plan with, in samples/s, in the trainers' order.

    The trainer whose next nodes are least known explores, one in twenty trainers, until a
    measurement says more; the others' curves are concave. Where a trainer's samples/s are not
    known, those of the others stand in.
    """
    explorers = _explorers(trainers)
    unit = common_unit([one.fit for one in trainers])
    curves = [_curve(one, index in explorers) for index, one in enumerate(trainers)]
    return [
        curve if one.fit.unit is not None else scaled(curve, unit)
        for one, curve in zip(trainers, curves, strict=True)
    ]


def common_unit(fits: Sequence[Fit]) -> float:
    """Return samples/s on one node for trainers of which nothing is measured.

    The geometric mean of the others: objectives in samples/s neither starve nor prefer them.
    """
    logs = [math.log(unit) for fit in fits if (unit := fit.unit) is not None]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def concave(curve: ThroughputCurve) -> ThroughputCurve:
    """Return the lowest curve above this one whose slopes never rise.

    Noise makes dents, which mean nothing and cost the solver a binary variable each.
    """
    hull: list[tuple[int, float]] = []
    for point in zip(curve.nodes, curve.values, strict=True):
        while len(hull) > 1 and _slope(hull[-1], point) >= _slope(hull[-2], hull[-1]):
            hull.pop()
        hull.append(point)
    nodes, values = zip(*hull, strict=True)
    return ThroughputCurve(nodes, values)


def _explorers(trainers: Sequence[Standing]) -> set[int]:
    doubts = {index: one.doubt for index, one in enumerate(trainers)}
    doubtful = [index for index, doubt in doubts.items() if doubt > _KNOWN]
    most = max(1, len(trainers) // _TRAINERS_AN_EXPLORER)
    return set(sorted(doubtful, key=lambda index: -doubts[index])[:most])


def _curve(one: Standing, explores: bool) -> ThroughputCurve:
    # An explorer's curve is not made concave: that would raise what it does on few nodes too.
    if explores:
        return one.fit.curve(one.max_nodes, _HOPE, one.nodes)
    return concave(one.fit.curve(one.max_nodes))


def _slope(left: tuple[int, float], right: tuple[int, float]) -> float:
    return (right[1] - left[1]) / (right[0] - left[0])
