"""Throughput: samples/s, times the weight. The paper uses it for trainers of one kind."""

from __future__ import annotations

from collections.abc import Sequence

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.objectives.base import Facts, scaled


def throughput(trainers: Sequence[Facts]) -> list[ThroughputCurve]:
    """Return weight * X(n), in samples/s."""
    return [scaled(one.curve, one.weight) for one in trainers]
