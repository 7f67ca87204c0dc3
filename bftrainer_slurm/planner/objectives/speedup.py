"""Speed-up: throughput over that of a node on the least size, so that big and small models compare.

On its least size each trainer counts as much as it takes: a small one gains nothing by that.
"""

from __future__ import annotations

from collections.abc import Sequence

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.objectives.base import Facts, scaled


def speedup(trainers: Sequence[Facts]) -> list[ThroughputCurve]:
    """Return weight * least * X(n) / X(min_nodes), in nodes; 0 for a trainer without progress."""
    return [relative(one.curve, one.min_nodes, one.weight * one.least) for one in trainers]


def relative(curve: ThroughputCurve, least: int, factor: float = 1.0) -> ThroughputCurve:
    """Return the curve in units of its value at ``least``, times a factor.

    If that value is 0, the unit is the first positive value at a larger size.
    """
    unit = curve.at(least)
    if unit <= 0:
        beyond = zip(curve.nodes, curve.values, strict=True)
        unit = next((value for size, value in beyond if size > least and value > 0), 0.0)
    return scaled(curve, factor / unit if unit > 0 else 0.0)
