"""The Lagrangian relaxation: nodes have prices in place of a limit, by class.

At given prices each group chooses what is worth most to it after paying. These choices, plus the
price of the whole pool, are worth at least as much as any plan. ``dual`` finds the prices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.planner.problem import Share
from bftrainer_slurm.planner.segments import Group

Reals = NDArray[np.float64]

_HALVINGS = 20


@dataclass(frozen=True, slots=True)
class Choices:
    """Each group's choice at some prices (a row for each group), and its worth after paying.

    ``of_segments`` has that worth for every segment at its best.
    """

    worth: Reals
    shares: Reals  # [groups, classes]
    net: Reals
    of_segments: Reals


class Relaxation:
    """All segments of all groups as arrays, [segments] and [segments, classes]."""

    def __init__(self, groups: Sequence[Group], sizes: Share) -> None:
        segments = [segment for group in groups for segment in group.segments]
        counts = [len(group.segments) for group in groups]
        self.groups = groups
        self.sizes = np.array(sizes, np.float64)
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

    def choose(self, prices: Reals, there: Reals | None = None) -> Choices:
        """Return each group's best choice at these prices.

        ``there`` has the available nodes of each group, [groups, classes]; None means all.
        """
        order = prices.argsort(kind="stable")
        price, high = prices[order], self._high
        if there is not None:
            high = np.minimum(high, there[self.group])
        room = (high - self._low)[:, order].clip(0.0)
        before = room.cumsum(axis=1) - room
        most = np.minimum(self._most, room.sum(axis=1))
        wanted = (room * (price < self._slope[:, None])).sum(axis=1)
        extra = np.minimum(np.maximum(wanted, self._least), most)
        taken = np.minimum((extra[:, None] - before).clip(0.0), room)
        worth = self._start + self._slope * (extra - self._least)
        net = worth - self._low @ prices - taken @ price
        if there is not None:
            net[(most < self._least) | (high < self._low).any(axis=1)] = -np.inf
        best = np.maximum.reduceat(net, self.first)
        hits = np.flatnonzero(net == best[self.group])
        # The first of several that are equally good.
        rows = hits[np.searchsorted(self.group[hits], np.arange(len(best)))]
        shares = self._low[rows]
        shares[:, order] += taken[rows]
        return Choices(worth[rows], shares, best, net)

    def bound(self, prices: Reals, choices: Choices) -> float:
        """No plan is worth more."""
        return float(self.sizes @ prices + self.members @ choices.net)

    def highest_price(self) -> float:
        """More than any segment is worth: at this price no trainer wants a node."""
        reach = self._slope.clip(0.0) * self._most
        return float(np.abs(self._start).max() + reach.max()) or 1.0

    def common_price(self) -> Reals:
        """One price for all classes, at which trainers take no more nodes than there are."""
        low, high = 0.0, self.highest_price()
        for _ in range(_HALVINGS):
            price = (low + high) / 2
            taken = self.members @ self.choose(np.full(len(self.sizes), price)).shares
            low, high = (price, high) if taken.sum() > self.sizes.sum() else (low, price)
        return np.full(len(self.sizes), high)
