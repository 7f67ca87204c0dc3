"""Fairness by user: proportional shares, and waiting that raises the weight.

A user counts once, whatever the number and weights of their trainers: the logarithm of what a
user's trainers reach together is maximised (proportional fairness: Kelly, Maulloo, Tan, 1998).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.objectives.base import Facts, Objective, redrawn
from bftrainer_slurm.planner.objectives.speedup import relative

HOUR_S = 3600.0
MOST = 100.0  # after ten hours


def fairness(objective: Objective) -> Objective:
    """Share fairly between users what the objective counts, and by the objective within each.

    A plan needs a sum over trainers, but a user's log(1 + sum of S_j) is not one. Its lower bound
    that is tight at the present allocation is one (Jensen; so the sum over users rises plan by
    plan): p_j * log(1 + S_j / w_j). S_j is trainer j's speed-up, in units of the smallest least
    size of all trainers. w_j is its part of the objective of the user's trainers on their least
    nodes, p_j its part of what they reach now. While a user has no node at all, waiting multiplies
    that.
    """

    def modified(trainers: Sequence[Facts]) -> list[ThroughputCurve]:
        result = objective(trainers)
        unit = min((one.least for one in trainers), default=1.0)
        by_user: dict[str, list[int]] = defaultdict(list)
        for index, one in enumerate(trainers):
            by_user[one.user].append(index)
        for mine in by_user.values():
            users = [trainers[index] for index in mine]
            shared = _share(users, [result[index] for index in mine], unit)
            for index, curve in zip(mine, shared, strict=True):
                result[index] = curve
        return result

    return modified


def impatience(waited_s: float) -> float:
    """Return by how much waiting raises a weight: 1 at first, 2 after an hour, at most ``MOST``.

    It rises with the square of the time, so that waits of minutes, which come with any change of
    the pool, do not make trainers take turns.
    """
    return min(1 + (waited_s / HOUR_S) ** 2, MOST)


def _share(
    trainers: list[Facts], curves: list[ThroughputCurve], unit: float
) -> list[ThroughputCurve]:
    """The curves of one user's trainers; a trainer without value on its least nodes keeps none."""
    gains = [
        relative(curve, one.min_nodes, one.least / unit)
        for one, curve in zip(trainers, curves, strict=True)
    ]
    weights = _parts([curve.at(one.min_nodes) for one, curve in zip(trainers, curves, strict=True)])
    reached = [gain.at(one.nodes) for one, gain in zip(trainers, gains, strict=True)]
    parts = _parts([weight + now for weight, now in zip(weights, reached, strict=True)])
    if all(one.nodes == 0 for one in trainers):
        parts = [part * impatience(one.waited_s) for one, part in zip(trainers, parts, strict=True)]
    return [
        _shared(one, gain, weight, part)
        for one, gain, weight, part in zip(trainers, gains, weights, parts, strict=True)
    ]


def _parts(amounts: list[float]) -> list[float]:
    """The amounts as parts of 1; all 0 if their sum is 0."""
    whole = sum(amounts)
    return [amount / whole if whole > 0 else 0.0 for amount in amounts]


def _shared(one: Facts, gain: ThroughputCurve, weight: float, factor: float) -> ThroughputCurve:
    def value(size: int) -> float:
        return factor * math.log1p(gain.at(size) / weight) if weight > 0 else 0.0

    return redrawn(one, gain, value)
