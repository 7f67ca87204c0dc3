"""A trainer's throughput curve and its uncertainty, exactly, from any number of measurements.

log X(n) = log g + law(n; a, b) + d(n). The laws are a grid with prior probabilities; the unit g is
unknown, with a flat prior in its logarithm; d is a smooth Gaussian deviation from the law, so that
measured sizes keep what was measured and the law fills in between (universal kriging).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.curves.law import PRIOR, Array, log_speed_ups
from bftrainer_slurm.planner.curves.measurement import Measurement, points_of

# How far real curves are from the law, and over how many doublings of nodes.
_OFF_LAW = 0.05
_DOUBLINGS = 1.0
_MOST_REMEMBERED = 32

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """The posterior of a trainer's curve. With L laws and M measured sizes:

    ``sizes`` [M] ascending; ``belief`` [L] the probability of each law; ``log_units`` [L] log g
    under each; ``residuals`` [L, M] the residuals of each; ``precision`` [M, M] the inverse
    covariance of the points. Without measurements M = 0, and g is taken as 1.
    """

    sizes: Array
    belief: Array
    log_units: Array
    residuals: Array
    precision: Array
    _asked: dict[object, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def unit(self) -> float | None:
        """Samples/s on one node; None without measurements: then only speed-ups are known."""
        if not len(self.sizes):
            return None
        return self._once("unit", lambda: float(np.exp(self._beliefs(np.array([1.0]))[0][0])))

    def has_measured(self, nodes: int) -> bool:
        """Whether anything was measured on this many nodes."""
        return nodes in self.sizes

    def curve(self, max_nodes: int, optimism: float = 0.0, above: int = 1) -> ThroughputCurve:
        """Return the median curve, in samples/s, or speed-up over one node if nothing is measured.

        With ``optimism`` it is raised above ``above`` nodes, by up to that many standard deviations
        of log(X(2 * above) / X(above)) on twice as many: what more nodes might bring.
        """
        if max_nodes < 1 or above < 1:
            raise ValueError("a curve needs max_nodes and above of 1 or more")
        question = (max_nodes, optimism, above)
        return self._once(question, lambda: self._curve(*question))

    def _curve(self, max_nodes: int, optimism: float, above: int) -> ThroughputCurve:
        nodes = curve_sizes(max_nodes, [*map(int, self.sizes), *([2 * above] if optimism else [])])
        middle, _ = self._beliefs(nodes)
        if optimism:
            ratio = self._ratio(np.minimum(nodes, 2 * above), above)
            middle = middle + optimism * np.where(nodes > above, ratio, 0.0)
        values = np.exp(middle)
        return ThroughputCurve((0, *map(int, nodes)), (0.0, *map(float, values)))

    def uncertainty(self, nodes: int, above: int | None = None) -> float:
        """Return the relative standard deviation of X(n), or of X(n) / X(above)."""
        places = np.array([float(nodes)])
        if above is None:
            return float(self._beliefs(places)[1][0])
        return self._once((nodes, above), lambda: float(self._ratio(places, above)[0]))

    def _once(self, question: object, answer: Callable[[], Answer]) -> Answer:
        """Cache answers: plans ask a fit for the same values again and again."""
        if question not in self._asked:
            if len(self._asked) >= _MOST_REMEMBERED:
                self._asked.clear()
            self._asked[question] = answer()
        found: Answer = self._asked[question]
        return found

    def _beliefs(self, nodes: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of log X at these sizes, [N] each."""
        means, weights, loose = self._parts(nodes)
        variance = _OFF_LAW**2 - (weights * covariance(nodes, self.sizes)).sum(axis=1)
        middle, spread = self._mixture(means)
        return middle, np.sqrt(np.maximum(variance + loose**2 * self._unit_variance() + spread, 0))

    def _ratio(self, nodes: Array, above: int) -> Array:
        """Standard deviation of log(X(n) / X(above)), [N]."""
        anchor = np.array([float(above)])
        means, weights, loose = self._parts(nodes)
        anchor_means, anchor_weights, anchor_loose = self._parts(anchor)
        between = 2 * (_OFF_LAW**2 - covariance(nodes, anchor)[:, 0])
        shared = covariance(nodes, self.sizes) - covariance(anchor, self.sizes)
        explained = ((weights - anchor_weights) * shared).sum(axis=1)
        unit = (loose - anchor_loose) ** 2 * self._unit_variance()
        spread = self._mixture(means - anchor_means)[1]
        variance: Array = np.maximum(between - explained + unit + spread, 0)
        return np.sqrt(variance)

    def _parts(self, nodes: Array) -> tuple[Array, Array, Array]:
        """Means of log X under each law [L, N]; weights of the points [N, M]; weight of g [N]."""
        weights = covariance(nodes, self.sizes) @ self.precision
        means = log_speed_ups(nodes) + self.log_units[:, None] + self.residuals @ weights.T
        return means, weights, 1 - weights.sum(axis=1)

    def _mixture(self, means: Array) -> tuple[Array, Array]:
        """Mean and variance over the laws, [N] each."""
        middle = self.belief @ means
        return middle, self.belief @ (means - middle) ** 2

    def _unit_variance(self) -> float:
        return float(1 / self.precision.sum()) if len(self.sizes) else 0.0


def fit(measurements: Sequence[Measurement]) -> Fit:
    """Fit the curve of one trainer. Without measurements it is the prior of any trainer."""
    points = points_of(measurements)
    sizes = np.array([float(point.nodes) for point in points])
    noise = np.diag([point.deviation**2 for point in points])
    inverse = np.linalg.inv(covariance(sizes, sizes) + noise)
    precision = np.asarray(inverse, dtype=np.float64)
    left = np.array([point.log_rate for point in points]) - log_speed_ups(sizes)
    weights = precision.sum(axis=0)
    log_units = left @ weights / weights.sum() if points else np.zeros(len(PRIOR))
    residuals = left - log_units[:, None]
    surprise = (residuals @ precision * residuals).sum(axis=1) / 2
    belief = PRIOR * np.exp(surprise.min() - surprise)
    return Fit(sizes, belief / belief.sum(), log_units, residuals, precision)


def curve_sizes(max_nodes: int, others: Sequence[int]) -> Array:
    """Return the sizes at which a curve is drawn: powers of two, the others, the most."""
    sizes = {max_nodes, *(size for size in others if size < max_nodes)}
    size = 1
    while size < max_nodes:
        sizes.add(size)
        size *= 2
    return np.array(sorted(sizes), dtype=np.float64)


def covariance(left: Array, right: Array) -> Array:
    """Return the covariance of the deviations from the law at two lists of sizes, [left, right]."""
    doublings = np.log2(left)[:, None] - np.log2(right)[None, :]
    return _OFF_LAW**2 * np.exp(-((doublings / _DOUBLINGS) ** 2) / 2)
