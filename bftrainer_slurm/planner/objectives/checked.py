"""Objectives from outside are not trusted: this checks that a plan can use what they return."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.objectives.base import Facts, Objective
from bftrainer_slurm.planner.objectives.throughput import throughput

logger = logging.getLogger(__name__)

_MOST_POINTS = 1000  # of one curve; the solver's model grows with them
_MOST = 1e15  # of one value; sums and products of such are still finite


def curves_of(objective: Objective, trainers: Sequence[Facts]) -> list[ThroughputCurve]:
    """Return the objective curves; if they cannot be used, throughput, and log why."""
    try:
        curves = objective(trainers)
        problem = _problem(curves, len(trainers))
    except Exception as error:  # a site's own code may raise anything
        problem = f"it raised {type(error).__name__}: {error}"
    if problem:
        logger.warning("objective not usable, planning by throughput: %s", problem)
        return throughput(trainers)
    return curves


def _problem(curves: object, count: int) -> str:
    """What is wrong with the answer; empty if nothing is."""
    if not isinstance(curves, list) or len(curves) != count:
        return f"it returned no list of {count} curves"
    for index, curve in enumerate(curves):
        if not isinstance(curve, ThroughputCurve):
            return f"curve {index} is a {type(curve).__name__}, no ThroughputCurve"
        if len(curve.nodes) > _MOST_POINTS:
            return f"curve {index} has more than {_MOST_POINTS} points"
        if not all(math.isfinite(value) and 0 <= value <= _MOST for value in curve.values):
            return f"curve {index} has a value that is not between 0 and {_MOST:g}"
        if not all(type(size) is int for size in curve.nodes):
            return f"curve {index} has a node count that is no integer"
    return ""
