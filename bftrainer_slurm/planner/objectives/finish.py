"""Finish: nearly finished trainers go first, so that they have results and free their nodes."""

from __future__ import annotations

from collections.abc import Sequence

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.objectives.base import Facts, Objective, scaled

MOST = 4.0  # reached in the last quarter: a false report gains no more than that


def finish(objective: Objective) -> Objective:
    """Multiply each curve by one over the share that is left (Smith's rule), at most ``MOST``.

    A trainer that does not report its progress counts as one that has just begun.
    """

    def modified(trainers: Sequence[Facts]) -> list[ThroughputCurve]:
        curves = objective(trainers)
        return [
            scaled(curve, urgency(one.done)) for one, curve in zip(trainers, curves, strict=True)
        ]

    return modified


def urgency(done: float | None) -> float:
    """Return the factor for a share that is done, 1 to ``MOST``."""
    return 1 / max(1 - (done or 0.0), 1 / MOST)
