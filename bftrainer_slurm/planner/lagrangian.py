"""The Lagrangian relaxation: each row of the supply has a price in place of a limit.

A row is a class of nodes, or the elements of one size in a class of divided nodes. An element pays
for what it takes of each row. At given prices each group chooses what is worth most to it after
paying. These choices, plus the price of the whole supply, are worth at least as much as any plan.
``dual`` finds the prices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.planner.problem import Problem, Row
from bftrainer_slurm.planner.segments import Group

Reals = NDArray[np.float64]
_Which: TypeAlias = slice | NDArray[np.intp]

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

    def __init__(self, groups: Sequence[Group], problem: Problem) -> None:
        segments = [segment for group in groups for segment in group.segments]
        counts = [len(group.segments) for group in groups]
        self.groups = groups
        self.rows = problem.rows()
        self.supply = np.array([row.amount for row in self.rows], np.float64)
        # What an element takes of each row, [classes, rows], by its GPUs.
        self.uses = {
            gpus: _uses(problem, self.rows, gpus)
            for gpus in dict.fromkeys(group.gpus for group in groups)
        }
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
        of_group = np.array([group.gpus for group in groups])
        self._groups_with = {gpus: _where(of_group == gpus) for gpus in self.uses}
        self._segments_with = {gpus: _where(of_group[self.group] == gpus) for gpus in self.uses}

    def choose(self, prices: Reals, there: Reals | None = None) -> Choices:
        """Return each group's best choice at these prices.

        ``there`` has the available nodes of each group, [groups, classes]; None means all.
        """
        high = self._high if there is None else np.minimum(self._high, there[self.group])
        shares = np.empty_like(self._low)
        worth, net = np.empty((2, len(shares)))
        for gpus, which in self._segments_with.items():
            part = self._best_of(which, high[which], self.prices_of(gpus, prices))
            shares[which], worth[which], net[which] = part
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

    def _best_of(self, which: _Which, high: Reals, prices: Reals) -> tuple[Reals, Reals, Reals]:
        """Return the best of each of these segments: shares, worth, and worth after paying.

        ``prices`` are those of an element, by class.
        """
        order = prices.argsort(kind="stable")
        price, low, least = prices[order], self._low[which], self._least[which]
        room = (high - low)[:, order].clip(0.0)
        before = room.cumsum(axis=1) - room
        most = np.minimum(self._most[which], room.sum(axis=1))
        wanted = (room * (price < self._slope[which, None])).sum(axis=1)
        extra = np.minimum(np.maximum(wanted, least), most)
        taken = np.minimum((extra[:, None] - before).clip(0.0), room)
        worth = self._start[which] + self._slope[which] * (extra - least)
        shares = low.copy()
        shares[:, order] += taken
        return shares, worth, worth - low @ prices - taken @ price

    def prices_of(self, gpus: int, prices: Reals) -> Reals:
        """What an element with so many GPUs pays, by class."""
        paid: Reals = self.uses[gpus] @ prices
        return paid

    def taken(self, shares: Reals) -> Reals:
        """How much of each row the groups' shares take, [groups, rows]."""
        rows = np.empty((len(shares), len(self.supply)))
        for gpus, which in self._groups_with.items():
            rows[which] = shares[which] @ self.uses[gpus]
        return rows

    def elements_in(self, left: Reals) -> Reals:
        """How many elements of each group fit into what is left of the rows, [groups, classes]."""
        found = np.empty((len(self.members), self._low.shape[1]))
        for gpus, which in self._groups_with.items():
            uses = self.uses[gpus]
            fit = np.full(uses.shape, np.inf)
            np.floor_divide(left, uses, out=fit, where=uses > 0)
            found[which] = np.where(np.isinf(fit).all(axis=1), 0.0, fit.min(axis=1))
        return found

    def bound(self, prices: Reals, choices: Choices) -> float:
        """No plan is worth more."""
        return float(self.supply @ prices + self.members @ choices.net)

    def highest_price(self) -> float:
        """More than any segment is worth: at this price no trainer wants a node."""
        reach = self._slope.clip(0.0) * self._most
        return float(np.abs(self._start).max() + reach.max()) or 1.0

    def common_price(self) -> Reals:
        """One price for all nodes, or all GPUs, at which trainers take no more than there are."""
        per_unit = self.per_unit()
        low, high = 0.0, self.highest_price()
        for _ in range(_HALVINGS):
            price = (low + high) / 2
            taken = self.members @ self.taken(self.choose(price * per_unit).shares)
            low, high = (price, high) if taken @ per_unit > self.supply @ per_unit else (low, price)
        return high * per_unit

    def per_unit(self) -> Reals:
        """How many nodes, or GPUs, one of each row is; 0 for all but a class's smallest size."""
        first = {row.place: number for number, row in reversed(list(enumerate(self.rows)))}
        units = [
            max(1, row.gpus) if first[row.place] == number else 0
            for number, row in enumerate(self.rows)
        ]
        return np.array(units, np.float64)


def _where(these: NDArray[np.bool_]) -> _Which:
    """Return an index of these; all of them as a slice, which numpy does not copy."""
    return slice(None) if these.all() else np.flatnonzero(these)


def _uses(problem: Problem, rows: Sequence[Row], gpus: int) -> Reals:
    classes = problem.all_classes()
    uses = np.zeros((len(classes), len(rows)))
    for number, row in enumerate(rows):
        uses[row.place, number] = row.taken_by(classes[row.place].units_of(gpus))
    return uses
