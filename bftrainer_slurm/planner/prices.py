"""Prices of nodes by class, and the bound that they prove.

The dual of the model with classes, by cutting planes (Kelley 1960; in the primal, Dantzig and
Wolfe 1960): at given prices everyone takes what brings them most after paying; a linear program
over all that was ever taken says the next prices. Runs in the child process only (``child``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import mip
import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.planner.bound import Bound
from bftrainer_slurm.planner.classes import Share
from bftrainer_slurm.planner.options import Bidder

_SCALE = 1000.0  # as in milp
_FAR = 1e9
_HALVINGS = 20

_Reals = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Demand:
    """What everyone takes at some prices: worth (charges paid) and share, a row a bidder."""

    worth: _Reals
    shares: _Reals  # [bidders, classes]
    bound: float


class Market:
    """All options of all bidders, [options] and [options, classes]."""

    def __init__(self, bidders: Sequence[Bidder], sizes: Share) -> None:
        options = [option for bidder in bidders for option in bidder.options]
        self.sizes = np.array(sizes, np.float64)
        self.members = np.array([len(bidder.members) for bidder in bidders], np.float64)
        counts = [len(bidder.options) for bidder in bidders]
        self._first = np.cumsum([0, *counts[:-1]])
        self._bidder = np.repeat(np.arange(len(bidders)), counts)
        self._charges = np.array([bidder.charges for bidder in bidders])[self._bidder]
        self._start = np.array([option.start for option in options])
        self._slope = np.array([option.slope for option in options])
        self._low = np.array([option.low for option in options], np.float64)
        self._room = np.array([option.high for option in options], np.float64) - self._low
        low = self._low.sum(axis=1)
        self._least = np.array([option.least for option in options]) - low
        self._most = np.array([option.most for option in options]) - low

    def demand(self, prices: _Reals) -> Demand:
        """Return what brings everyone most at these prices, by class; and the bound that it is."""
        costs = self._charges + prices
        order = costs.argsort(axis=1)
        cost, room = (np.take_along_axis(one, order, axis=1) for one in (costs, self._room))
        before = room.cumsum(axis=1) - room
        wanted = (room * (cost < self._slope[:, None])).sum(axis=1)
        extra = wanted.clip(self._least, self._most)
        taken = (extra[:, None] - before).clip(0.0, room)
        worth = self._start + self._slope * (extra - self._least)
        net = worth - (self._low * costs).sum(axis=1) - (taken * cost).sum(axis=1)
        best = np.maximum.reduceat(net, self._first)
        hits = np.flatnonzero(net == best[self._bidder])
        # Of several that bring as much, the first.
        rows = hits[np.searchsorted(self._bidder[hits], np.arange(len(best)))]
        shares = self._low[rows]
        np.put_along_axis(
            shares, order[rows], taken[rows] + np.take_along_axis(shares, order[rows], 1), 1
        )
        charged = (shares * self._charges[rows]).sum(axis=1)
        bound = float(self.sizes @ prices + self.members @ best)
        return Demand(worth[rows] - charged, shares, bound)

    def most(self) -> float:
        """More than any option is worth: at this price nobody takes a node for nothing."""
        reach = self._slope.clip(0.0) * self._most
        return float(np.abs(self._start).max() + reach.max()) or 1.0

    def common_price(self) -> _Reals:
        """One price for all classes, at which about as much is taken as there is: to begin with."""
        low, high = 0.0, self.most()
        for _ in range(_HALVINGS):
            price = (low + high) / 2
            if self.demand(np.full(len(self.sizes), price)).shares.sum() > self.sizes.sum():
                low = price
            else:
                high = price
        return np.full(len(self.sizes), high)


def bound_by_prices(
    bidders: Sequence[Bidder], sizes: Share, gap: float, deadline_s: float
) -> Bound:
    """Return the best bound that prices by class give, to within ``gap`` (relative).

    When the time (``time.monotonic``) is over, the best so far: a bound it is at any prices.
    """
    market = Market(bidders, sizes)
    master = _Master(market)
    prices, low, best = market.common_price(), -math.inf, Bound(math.inf, ())
    while True:
        demand = market.demand(prices)
        if demand.bound < best.value:
            best = Bound(demand.bound, tuple(map(float, prices)))
        if not master.add(demand) and low > -math.inf:
            return best  # but for rounding, it is as low as the master says
        prices, low = master.solve()
        if best.value - low <= gap * abs(best.value) or time.monotonic() > deadline_s:
            return best


class _Master:
    """The least bound over all that was taken so far: next prices, and how low a bound can be."""

    def __init__(self, market: Market) -> None:
        self._unit = market.most() / _SCALE
        self._model = mip.Model(sense=mip.MINIMIZE, solver_name=mip.CBC)
        self._model.verbose = 0
        self._model.threads = 0
        self._prices = [self._model.add_var(obj=float(size)) for size in market.sizes]
        self._bests = [
            self._model.add_var(lb=-_FAR, ub=_FAR, obj=float(count)) for count in market.members
        ]
        self._known: set[tuple[float, ...]] = set()
        self.add(market.demand(np.full(len(market.sizes), market.most())))

    def add(self, demand: Demand) -> bool:
        """Nobody's best is below what this brings after paying; False: all of it was known."""
        known = len(self._known)
        for place, (worth, share) in enumerate(zip(demand.worth, demand.shares, strict=True)):
            taken = (place, *map(float, share), float(worth))
            if taken in self._known:
                continue
            self._known.add(taken)
            classes = np.flatnonzero(share)
            terms = [self._bests[place], *(self._prices[one] for one in classes)]
            factors = [1.0, *map(float, share[classes])]
            self._model += mip.LinExpr(terms, factors) >= float(worth) / self._unit
        return len(self._known) > known

    def solve(self) -> tuple[_Reals, float]:
        """Return the prices, and the bound that they would give if nothing else could be taken."""
        self._model.optimize(relax=True)
        prices = np.array([price.x for price in self._prices]) * self._unit
        return prices, self._model.objective_value * self._unit
