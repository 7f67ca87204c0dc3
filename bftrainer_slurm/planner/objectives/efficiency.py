"""Scaling efficiency: the speed-up counts less if the nodes are used badly.

Maximising the efficiency itself would leave every trainer on its least nodes, where it is 1, so
the speed-up S is taken times the efficiency E: their product is greatest at the knee of the curve
(Eager, Zahorjan, Lazowska, "Speedup versus efficiency in parallel systems", 1989).
"""

from __future__ import annotations

from collections.abc import Sequence

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.objectives.base import Facts, redrawn
from bftrainer_slurm.planner.objectives.speedup import relative


def efficiency(trainers: Sequence[Facts]) -> list[ThroughputCurve]:
    """Return weight * least * S(n) * E(n): S(n) = X(n) / X(min), E(n) = S(n) * min / n."""
    return [_curve(one) for one in trainers]


def _curve(one: Facts) -> ThroughputCurve:
    gain = relative(one.curve, one.min_nodes)

    def value(size: int) -> float:
        return one.weight * one.least * gain.at(size) ** 2 * one.min_nodes / size

    return redrawn(one, one.curve, value)
