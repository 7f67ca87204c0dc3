"""How long a hole will still last, learnt from the holes so far; no Slurm, no clock.

Two things tell: the node's place in the scheduler's order (schedulers take nodes from one end of
it: Slurm by weight, then by index, ``select/cons_tres``), and how old the hole is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_PLACES = 10
_AGE_EDGES_S = (60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
_PRIOR_LIFE_S = 600.0
_PRIOR_ENDS = 5.0  # as if this many holes had ended before, for each place and each age
_FORGET_S = 3 * 86400.0  # observations count half as much after two days
_CENTRES = (np.arange(_PLACES) + 0.5) / _PLACES

Seconds = NDArray[np.float64]


class Survival:
    """Hazards of holes (ends per node-second) by place and by age; older observations fade."""

    def __init__(self) -> None:
        self._ends = np.zeros(_PLACES)
        self._exposed_s = np.zeros(_PLACES)
        self._age_ends = np.zeros(len(_AGE_EDGES_S) + 1)
        self._age_expected = np.zeros(len(_AGE_EDGES_S) + 1)

    def observe(self, ages_s: Sequence[float], ended: Sequence[bool], seconds: float) -> None:
        """Learn from holes, in the scheduler's order, that existed ``seconds`` ago.

        ``ages_s`` is how old each was then, ``ended`` whether the scheduler has taken it since.
        """
        if not ages_s:
            return
        places = _places(len(ages_s))
        ages = np.searchsorted(_AGE_EDGES_S, ages_s)
        gone = np.asarray(ended, np.float64)
        kept = math.exp(-seconds / _FORGET_S)
        for sums in (self._ends, self._exposed_s, self._age_ends, self._age_expected):
            sums *= kept
        expected = np.interp(places, _CENTRES, self._hazards()) * seconds
        self._age_ends += np.bincount(ages, gone, len(self._age_ends))
        self._age_expected += np.bincount(ages, expected, len(self._age_ends))
        bins = (places * _PLACES).astype(np.intp)
        self._ends += np.bincount(bins, gone, _PLACES)
        self._exposed_s += seconds * np.bincount(bins, minlength=_PLACES)

    def life_s(self, ages_s: Sequence[float]) -> Seconds:
        """Return how long holes of these ages, in the scheduler's order, are expected to last."""
        hazards = np.interp(_places(len(ages_s)), _CENTRES, self._hazards())
        by_age = (self._age_ends + _PRIOR_ENDS) / (self._age_expected + _PRIOR_ENDS)
        life_s: Seconds = 1.0 / (hazards * by_age[np.searchsorted(_AGE_EDGES_S, ages_s)])
        return life_s

    def _hazards(self) -> Seconds:
        hazards: Seconds = (self._ends + _PRIOR_ENDS) / (
            self._exposed_s + _PRIOR_ENDS * _PRIOR_LIFE_S
        )
        return hazards


def _places(count: int) -> Seconds:
    """The place of each of so many nodes, from 0 (the front) to 1."""
    places: Seconds = (np.arange(count) + 0.5) / max(1, count)
    return places
