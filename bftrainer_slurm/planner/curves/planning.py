"""The curves for a plan: as fitted, a few of them raised if trying more nodes may pay off.

A plan that only believes its fits never learns what it does not try. A plan that is optimistic
everywhere tries everything at once. So only a few curves are raised, up to twice their nodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.curves.fit import Fit
from bftrainer_slurm.planner.objectives.base import scaled

# Chosen by simulations of trainers on pools that come and go.
_HOPE = 2.0  # standard deviations; less does not outweigh the cost of rescaling
_TRAINERS_AN_EXPLORER = 20
_KNOWN = 0.08  # relative; smaller uncertainties need no look
_PAYS_AFTER_S = 900.0  # a look costs two rescales, and the rest of the run repays it
_ABOVE_LINEAR = 1.25  # no trainer does more on twice the nodes than twice as much, and a quarter


@dataclass(frozen=True, slots=True)
class Standing:
    """A trainer in a plan: its fitted curve, its nodes, its remaining run time.

    ``remaining_s`` is None if it is unknown. ``in_samples`` is true if the measurements are
    samples/s, and not only proportional to them. ``above``: its curve is already raised above that
    many nodes, and stays so until it is measured there.
    """

    fit: Fit
    nodes: int
    max_nodes: int
    remaining_s: float | None = field(default=None, compare=False)  # it passes by itself
    in_samples: bool = True
    above: int | None = None

    @property
    def doubt(self) -> float:
        """Relative uncertainty of the gain from twice its nodes; 0 if a look cannot pay off."""
        if not self.fit.has_measured(self.nodes):
            return 0.0  # first see what it does where it is
        if self.remaining_s is not None and self.remaining_s < _PAYS_AFTER_S:
            return 0.0
        return self.fit.uncertainty(min(2 * self.nodes, self.max_nodes), above=self.nodes)


def planning_curves(trainers: Sequence[Standing], exploring: bool = True) -> list[ThroughputCurve]:
    """Return the throughput curves to plan with, in samples/s, in the trainers' order.

    One in twenty trainers explores: the one whose next nodes are least known, until a measurement
    says more. The others' curves are concave; all are if exploring is off. If a trainer's samples/s
    are unknown, those of the others take their place.
    """
    raised = explorers(trainers) if exploring else frozenset()
    unit = common_unit([one.fit for one in trainers if one.in_samples])
    curves = [_curve(one, index in raised) for index, one in enumerate(trainers)]
    return [
        curve if _is_absolute(one) else scaled(curve, unit / (one.fit.unit or 1.0))
        for one, curve in zip(trainers, curves, strict=True)
    ]


def explorers(trainers: Sequence[Standing]) -> frozenset[int]:
    """Return the indexes of raised curves: explorers first, then the most uncertain ones."""
    exploring = [index for index, one in enumerate(trainers) if one.above is not None]
    doubts = {index: one.doubt for index, one in enumerate(trainers) if one.above is None}
    doubtful = [index for index, doubt in doubts.items() if doubt > _KNOWN]
    most = max(1, len(trainers) // _TRAINERS_AN_EXPLORER)
    return frozenset([*exploring, *sorted(doubtful, key=lambda index: -doubts[index])][:most])


def common_unit(fits: Sequence[Fit]) -> float:
    """Return samples/s on one node for trainers for which they are unknown.

    It is the (geometric) median of the others: objectives in samples/s then neither starve nor
    prefer such trainers, and a trainer that reports nonsense does not move it.
    """
    logs = [math.log(unit) for fit in fits if (unit := fit.unit) is not None]
    return math.exp(median(logs)) if logs else 1.0


def concave(curve: ThroughputCurve) -> ThroughputCurve:
    """Return the lowest curve above this one whose slopes never rise.

    Dents come from noise. They mean nothing, and each costs the solver a binary variable.
    """
    hull: list[tuple[int, float]] = []
    for point in zip(curve.nodes, curve.values, strict=True):
        while len(hull) > 1 and _slope(hull[-1], point) >= _slope(hull[-2], hull[-1]):
            hull.pop()
        hull.append(point)
    nodes, values = zip(*hull, strict=True)
    return ThroughputCurve(nodes, values)


def _is_absolute(one: Standing) -> bool:
    return one.in_samples and one.fit.unit is not None


def _curve(one: Standing, explores: bool) -> ThroughputCurve:
    # An explorer's curve is not made concave: that would also raise it on few nodes.
    if explores:
        above = one.nodes if one.above is None else one.above
        return _bounded(one.fit.curve(one.max_nodes, _HOPE, above))
    return concave(one.fit.curve(one.max_nodes))


def _bounded(curve: ThroughputCurve) -> ThroughputCurve:
    """The curve, cut where it rises by far more than its nodes: that is not credible."""
    values, least = [0.0], math.inf  # the least of a node so far
    for nodes, value in zip(curve.nodes[1:], curve.values[1:], strict=True):
        values.append(min(value, _ABOVE_LINEAR * least * nodes))
        least = min(least, value / nodes)
    return ThroughputCurve(curve.nodes, tuple(values))


def _slope(left: tuple[int, float], right: tuple[int, float]) -> float:
    return (right[1] - left[1]) / (right[0] - left[0])
