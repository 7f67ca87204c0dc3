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
    common = relaxation.common_price()
    best = tried = _at(relaxation, common.prices)
    if best.bound - common.least <= gap * abs(best.bound):
        return best
    master = _Master(relaxation)
    for choices in common.choices:
        master.add(choices)
    low = -math.inf
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


class _Master:
    """The least bound over all choices so far: the next prices, and how low a bound can be."""

    def __init__(self, relaxation: Relaxation) -> None:
        self._unit = relaxation.highest_price() / SCALE
        self._model = new_model(mip.MINIMIZE)
        self._prices = [self._model.add_var(obj=float(size)) for size in relaxation.supply]
        self._nets = [
            self._model.add_var(lb=-_FAR, ub=_FAR, obj=float(count)) for count in relaxation.members
        ]
        self._known: set[tuple[int, float, bytes]] = set()
        self._taken = relaxation.taken
        nobody = np.full(len(relaxation.supply), relaxation.highest_price())
        self.add(relaxation.choose(nobody))

    def add(self, choices: Choices) -> bool:
        """Add: no group is worth less than with this choice; False if that was known."""
        known = len(self._known)
        taken = self._taken(choices.shares)
        for group, (worth, rows) in enumerate(zip(choices.worth, taken, strict=True)):
            choice = group, float(worth), rows.tobytes()
            if choice in self._known:
                continue
            self._known.add(choice)
            used = np.flatnonzero(rows)
            terms = [self._nets[group], *(self._prices[one] for one in used)]
            factors = [1.0, *rows[used].tolist()]
            self._model += mip.LinExpr(terms, factors, -float(worth) / self._unit, ">")
        return len(self._known) > known

    def solve(self) -> tuple[Reals, float]:
        """Return the prices, and the bound that they would give if nothing else could be chosen."""
        self._model.optimize(relax=True)
        prices = np.array([max(0.0, price.x) for price in self._prices]) * self._unit
        return prices, self._model.objective_value * self._unit
