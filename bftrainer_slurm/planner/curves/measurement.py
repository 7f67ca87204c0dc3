"""Measured throughputs, and a robust value for each size, in spite of stragglers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Standard deviations of log throughput. Nodes differ permanently. A short look is noisy. A single
# look may have met a straggler or the warm-up after a rescale; only several looks can tell.
_ALWAYS = 0.01
_OF_TEN_SECONDS = 0.10
_OF_ONE_LOOK = 0.10
_MOST_SIZES = 32  # bounds the time of a fit; the ones measured longest are kept


@dataclass(frozen=True, slots=True)
class Measurement:
    """Samples/s on this many nodes, measured over so many seconds."""

    nodes: int
    samples_per_s: float
    seconds: float

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise ValueError("a measurement needs a node")
        if not (0 < self.samples_per_s < math.inf and 0 < self.seconds < math.inf):
            raise ValueError("a measurement needs samples/s and seconds above 0")


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """What was measured on one number of nodes: log of samples/s and its standard deviation."""

    nodes: int
    log_rate: float
    deviation: float


def points_of(measurements: Iterable[Measurement]) -> list[Point]:
    """Return a point for each size, ascending."""
    by_size: dict[int, list[Measurement]] = defaultdict(list)
    for one in measurements:
        by_size[one.nodes].append(one)
    longest = sorted(by_size, key=lambda size: sum(one.seconds for one in by_size[size]))
    return [_point(by_size[size]) for size in sorted(longest[-_MOST_SIZES:])]


def _point(measurements: list[Measurement]) -> Point:
    """The median by time: a slowdown for less than half of the time does not count."""
    rates = np.log([one.samples_per_s for one in measurements])
    seconds = np.array([one.seconds for one in measurements])
    middle = _median(rates, seconds)
    looks = len(measurements)
    scatter = 1.4826 * _median(np.abs(rates - middle), seconds) / math.sqrt(looks)
    short = _OF_TEN_SECONDS * math.sqrt(10 / seconds.sum())
    deviation = math.hypot(_ALWAYS, max(short, scatter), _OF_ONE_LOOK / looks**2)
    return Point(measurements[0].nodes, middle, deviation)


def _median(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """The weighted median, linear between values, so that two count as their mean."""
    order = np.lexsort((weights, values))  # independent of the order in which they came
    middles = np.cumsum(weights[order]) - weights[order] / 2
    return float(np.interp(weights.sum() / 2, middles, values[order]))
