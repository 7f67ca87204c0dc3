"""The Lagrangian dual: the prices, by row of the supply, that prove the best bound.

It uses cutting planes (Kelley 1960; in the primal, Dantzig and Wolfe 1960): the groups' choices at
some prices bound the dual from below at all prices. The next prices are those at which these bounds
are lowest. With one row this is the point where two lines meet; with several, a linear program
that CBC solves. Runs in the child process only (``child``).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import mip
import numpy as np

from bftrainer_slurm.planner.cbc import SCALE, new_model
from bftrainer_slurm.planner.lagrangian import Choices, Reals, Relaxation

_FAR = 1e9
_ROUNDING = 1e-13  # relative


@dataclass(frozen=True, slots=True)
class Dual:
    """Prices, the groups' choices at these prices, and the bound that they prove."""

    prices: Reals
    choices: Choices
    bound: float


def solve_dual(relaxation: Relaxation, gap: float, deadline_s: float) -> Dual:
    """Return the dual's optimum to within ``gap`` (relative).

    If the time (``time.monotonic``) is over, return the best so far: any prices prove a bound.
    """
    if len(relaxation.supply) == 1:
        return _solve_for_one_row(relaxation)
    master = _Master(relaxation)
    best = _at(relaxation, relaxation.common_price())
    tried, low = best, -math.inf
    while True:
        best = min(best, tried, key=lambda one: one.bound)
        if not master.add(tried.choices) and low > -math.inf:
            return best  # apart from rounding, it is as low as the master says
        prices, low = master.solve()
        if best.bound - low <= gap * abs(best.bound) or time.monotonic() > deadline_s:
            return best
        tried = _at(relaxation, prices)


def _at(relaxation: Relaxation, prices: Reals) -> Dual:
    choices = relaxation.choose(prices)
    return Dual(prices, choices, relaxation.bound(prices, choices))


def _solve_for_one_row(relaxation: Relaxation) -> Dual:
    """Narrow down the price from both sides: trainers take more than there is, or not."""

    def line(at: Dual) -> tuple[float, float]:
        """The total worth of these choices, and how much they leave."""
        used = float(relaxation.members @ relaxation.taken(at.choices.shares)[:, 0])
        return float(relaxation.members @ at.choices.worth), float(relaxation.supply[0]) - used

    low, high = (_at(relaxation, np.array([p])) for p in (0.0, relaxation.highest_price()))
    if line(low)[1] >= 0:
        return low
    while True:
        (worth_low, left_low), (worth_high, left_high) = line(low), line(high)
        price = (worth_low - worth_high) / (left_high - left_low)
        lowest = worth_low + price * left_low
        tried = _at(relaxation, np.array([price]))
        inside = low.prices[0] < price < high.prices[0]
        if tried.bound - lowest <= _ROUNDING * abs(tried.bound) or not inside:
            return min(low, high, tried, key=lambda one: one.bound)
        if line(tried)[1] >= 0:
            high = tried
        else:
            low = tried


class _Master:
    """The least bound over all choices so far: the next prices, and how low a bound can be."""

    def __init__(self, relaxation: Relaxation) -> None:
        self._unit = relaxation.highest_price() / SCALE
        self._model = new_model(mip.MINIMIZE)
        self._prices = [self._model.add_var(obj=float(size)) for size in relaxation.supply]
        self._nets = [
            self._model.add_var(lb=-_FAR, ub=_FAR, obj=float(count)) for count in relaxation.members
        ]
        self._known: set[tuple[float, ...]] = set()
        self._taken = relaxation.taken
        nobody = np.full(len(relaxation.supply), relaxation.highest_price())
        self.add(relaxation.choose(nobody))

    def add(self, choices: Choices) -> bool:
        """Add: no group is worth less than with this choice; False if that was known."""
        known = len(self._known)
        taken = self._taken(choices.shares)
        for group, (worth, rows) in enumerate(zip(choices.worth, taken, strict=True)):
            choice = (group, *map(float, rows), float(worth))
            if choice in self._known:
                continue
            self._known.add(choice)
            used = np.flatnonzero(rows)
            terms = [self._nets[group], *(self._prices[one] for one in used)]
            factors = [1.0, *map(float, rows[used])]
            self._model += mip.LinExpr(terms, factors) >= float(worth) / self._unit
        return len(self._known) > known

    def solve(self) -> tuple[Reals, float]:
        """Return the prices, and the bound that they would give if nothing else could be chosen."""
        self._model.optimize(relax=True)
        prices = np.array([max(0.0, price.x) for price in self._prices]) * self._unit
        return prices, self._model.objective_value * self._unit
