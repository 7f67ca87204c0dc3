"""Goodput: throughput times what a sample counts in so large a batch, as in Pollux (OSDI 2021).

The gradient noise scale says up to which batch more samples in a step are worth nearly as much
(McCandlish et al., "An empirical model of large-batch training", 2018).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.objectives.base import Facts, redrawn


def batch_efficiency(noise: float, nodes: float) -> float:
    """Return what a sample on so many nodes counts of one on a single node, 0 to 1.

    ``noise`` is the noise scale in batches of one node; infinite: it counts the same on any number.
    """
    return 1.0 if math.isinf(noise) else (noise + 1) / (noise + nodes)


def goodput(trainers: Sequence[Facts]) -> list[ThroughputCurve]:
    """Return weight * X(n) * ``batch_efficiency``(n), in samples/s of one node's batches."""
    return [_curve(one) for one in trainers]


def _curve(one: Facts) -> ThroughputCurve:
    def value(size: int) -> float:
        return one.weight * one.curve.at(size) * batch_efficiency(one.noise, size)

    return redrawn(one, one.curve, value)
