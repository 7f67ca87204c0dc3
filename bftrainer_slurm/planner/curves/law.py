"""The universal scalability law, and the prior of its parameters.

X(n) = g * n / (1 + a (n - 1) + b n (n - 1)): a is the share that does not scale, b what every pair
of nodes costs (Gunther, "Guerrilla Capacity Planning", 2007); b = 0 is Amdahl's law.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Medians and standard deviations (of the logarithms) of a and b before any measurement.
# On 2 to 64 nodes the median curve is that of Amdahl's law with 5 % that does not scale.
_SERIAL = (0.035, 1.5)
_PAIRS = (3e-7, 2.5)
_SERIAL_STEPS, _PAIR_STEPS = 25, 19


def _grid() -> tuple[Array, Array, Array]:
    """All pairs of a and b, and the prior probability of each; three vectors."""
    serial, serial_mass = _log_normal(*_SERIAL, _SERIAL_STEPS)
    pairs, pairs_mass = _log_normal(*_PAIRS, _PAIR_STEPS)
    a, b = np.meshgrid(np.minimum(serial, 1.0), pairs, indexing="ij")
    return a.ravel(), b.ravel(), np.outer(serial_mass, pairs_mass).ravel()


def _log_normal(median: float, deviation: float, steps: int) -> tuple[Array, Array]:
    places = np.linspace(-3, 3, steps)
    mass = np.exp(-(places**2) / 2)
    return median * np.exp(deviation * places), mass / mass.sum()


SERIAL, PAIRS, PRIOR = _grid()


def log_speed_ups(nodes: Array) -> Array:
    """Return log(X(n) / X(1)): a row for each law of the grid, a column for each size."""
    above = nodes - 1
    return np.log(nodes) - np.log1p(np.outer(SERIAL, above) + np.outer(PAIRS, nodes * above))
