"""The Lagrangian relaxation: each row of the supply has a price in place of a limit.

A row is a class of nodes, or the elements of one size in a class of divided nodes. An element pays
for what it takes of each row. At given prices each group chooses what is worth most to it after
paying. These choices, plus the price of the whole supply, are worth at least as much as any plan.
``dual`` finds the prices.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.planner.problem import Problem
from bftrainer_slurm.planner.segments import Group
from bftrainer_slurm.planner.supply import ROUNDING

Reals = NDArray[np.float64]

_SAME = 1e-13  # relative, of bounds


@dataclass(frozen=True, slots=True)
class Choices:
    """Each group's choice at some prices (a row for each group), and its worth after paying.

    ``of_segments`` has that worth for every segment at its best.
    """

    worth: Reals
    shares: Reals  # [groups, rows]
    net: Reals
    of_segments: Reals


@dataclass(frozen=True, slots=True)
class _Tangent:
    """The bound near a price: what the choices there are worth, and how much they leave."""

    price: float
    worth: float
    left: float

    def at(self, price: float) -> float:
        """Its value at another price; no bound there is below."""
        return self.worth + price * self.left

    @property
    def bound(self) -> float:
        return self.at(self.price)


class Relaxation:
    """All segments of all groups as arrays, [segments] and [segments, rows]."""

    def __init__(self, groups: Sequence[Group], problem: Problem) -> None:
        segments = [segment for group in groups for segment in group.segments]
        counts = [len(group.segments) for group in groups]
        self.groups = groups
        self.rows = problem.rows()
        self.supply = np.array([row.amount for row in self.rows], np.float64)
        # What an element of each row takes of every row, [rows, rows].
        self.uses = np.array(
            [[row.taken_by(other) for row in self.rows] for other in self.rows], np.float64
        )
        self.members = np.array([len(group.members) for group in groups], np.float64)
        self.first = np.cumsum([0, *counts[:-1]])
        self.group = np.repeat(np.arange(len(groups)), counts)
        self._start = np.array([one.start for one in segments])
        self._slope = np.array([one.slope for one in segments])
        self._low = np.array([one.low for one in segments], np.float64)
        self._high = np.array([one.high for one in segments], np.float64)
        self._fixed = self._low.sum(axis=1)
        self._least = np.array([one.least for one in segments]) - self._fixed
        self._most = np.array([one.most for one in segments]) - self._fixed

    def only(self, groups: NDArray[np.bool_]) -> Relaxation:
        """Return the same of some groups."""
        some = copy.copy(self)
        kept = np.flatnonzero(groups[self.group])
        some.groups = list(itertools.compress(self.groups, groups.tolist()))
        some.members = self.members[groups]
        some.group = (groups.cumsum() - 1)[self.group[kept]]
        some.first = np.searchsorted(some.group, np.arange(len(some.groups)))
        some._start, some._slope = self._start[kept], self._slope[kept]
        some._low, some._high = self._low[kept], self._high[kept]
        some._fixed, some._least, some._most = (
            one[kept] for one in (self._fixed, self._least, self._most)
        )
        return some

    def choose(self, prices: Reals, there: Reals | None = None) -> Choices:
        """Return each group's best choice at these prices.

        ``there`` has the available elements of each group, [groups, rows]; None means all.
        """
        high = self._high if there is None else np.minimum(self._high, there[self.group])
        shares, worth, net = self._best_of(high, self.prices_of(prices))
        if there is not None:
            short = self._most_within(high) < self._least
            net[short | (high < self._low).any(axis=1)] = -np.inf
        best = np.maximum.reduceat(net, self.first)
        hits = np.flatnonzero(net == best[self.group])
        # The first of several that are equally good.
        rows = hits[np.searchsorted(self.group[hits], np.arange(len(best)))]
        return Choices(worth[rows], shares[rows], best, net)

    def _most_within(self, high: Reals) -> Reals:
        most: Reals = np.minimum(self._most, (high - self._low).clip(0.0).sum(axis=1))
        return most

    def _best_of(self, high: Reals, prices: Reals) -> tuple[Reals, Reals, Reals]:
        """Return the best of each segment: shares, worth, and worth after paying.

        ``prices`` are those of an element, by row.
        """
        order = prices.argsort(kind="stable")
        price, low, least = prices[order], self._low, self._least
        room = (high - low)[:, order].clip(0.0)
        before = room.cumsum(axis=1) - room
        most = np.minimum(self._most, room.sum(axis=1))
        wanted = (room * (price < self._slope[:, None])).sum(axis=1)
        extra = np.minimum(np.maximum(wanted, least), most)
        taken = np.minimum((extra[:, None] - before).clip(0.0), room)
        worth = self._start + self._slope * (extra - least)
        shares = low.copy()
        shares[:, order] += taken
        return shares, worth, worth - low @ prices - taken @ price

    def prices_of(self, prices: Reals) -> Reals:
        """What an element pays, by its row."""
        paid: Reals = self.uses @ prices
        return paid

    def taken(self, shares: Reals) -> Reals:
        """How much of each row the groups' shares take, [groups, rows]."""
        taken: Reals = shares @ self.uses
        return taken

    def elements_in(self, left: Reals) -> Reals:
        """How many new elements of each row fit into what is left of the rows."""
        fit = np.full(self.uses.shape, np.inf)
        np.floor_divide(left + ROUNDING, self.uses, out=fit, where=self.uses > 0)
        least: Reals = fit.min(axis=1) * [row.frees is None for row in self.rows]
        return least

    def bound(self, prices: Reals, choices: Choices) -> float:
        """No plan is worth more."""
        return float(self.supply @ prices + self.members @ choices.net)

    def highest_price(self) -> float:
        """More than any segment is worth: at this price no trainer wants a node."""
        reach = self._slope.clip(0.0) * self._most
        return float(np.abs(self._start).max() + reach.max()) or 1.0

    def common_price(self) -> Reals:
        """One price for all nodes, or all GPUs: that of the least bound.

        It is narrowed down from both sides: trainers take more than there is, or not. The bound is
        convex in the price, and the tangents of both sides meet at the next price.
        """
        per_unit = self.per_unit()

        def tangent(price: float) -> _Tangent:
            choices = self.choose(price * per_unit)
            left = float((self.supply - self.members @ self.taken(choices.shares)) @ per_unit)
            return _Tangent(price, float(self.members @ choices.worth), left)

        low, high = tangent(0.0), tangent(self.highest_price())
        if low.left >= 0:
            return low.price * per_unit
        while True:
            price = (low.worth - high.worth) / (high.left - low.left)
            tried = tangent(price)
            inside = low.price < price < high.price
            if tried.bound - low.at(price) <= _SAME * abs(tried.bound) or not inside:
                return min(low, high, tried, key=lambda one: one.bound).price * per_unit
            low, high = (low, tried) if tried.left >= 0 else (tried, high)

    def per_unit(self) -> Reals:
        """How many nodes, or GPUs, one of each row is; 0 for all but a class's smallest size."""
        first = {row.place: number for number, row in reversed(list(enumerate(self.rows)))}
        units = [
            max(1, row.gpus) if first[row.place] == number else 0
            for number, row in enumerate(self.rows)
        ]
        return np.array(units, np.float64)
