"""The Lagrangian relaxation: each row of the supply has a price in place of a limit.

A row is a class of nodes, or the elements of one size in a class of divided nodes. An element pays
for what it takes of each row. At given prices each group chooses what is worth most to it after
paying. These choices, plus the price of the whole supply, are worth at least as much as any plan.
``counts`` finds the prices where one for all is not the best.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.planner.problem import Problem, Share
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
class Bound:
    """Prices, the groups' choices at these prices, and what no plan is worth more than.

    No prices have a bound below ``least``, if that is known.
    """

    prices: Reals
    choices: Choices
    worth: float
    least: float = -math.inf


@dataclass(frozen=True, slots=True)
class _Tangent:
    """The bound near a price: what the choices there are worth, and how much they leave."""

    price: float
    worth: float
    rows: Reals  # what is left of each
    left: float  # of all together

    def at(self, price: float) -> float:
        """Its value at another price; no bound there is below."""
        return self.worth + price * self.left

    @property
    def bound(self) -> float:
        return self.at(self.price)


class Segments(NamedTuple):
    """Segments as arrays, [segments] and [segments, rows].

    ``least`` and ``most`` are the elements beyond ``low``, ``room`` those that it may have of each
    row.
    """

    start: Reals
    slope: Reals
    least: Reals
    most: Reals
    low: Reals
    room: Reals

    def only(self, kept: NDArray[np.int64]) -> Segments:
        """Return those at these places."""
        return Segments(*(one[kept] for one in self))


class Relaxation:
    """All segments of all groups."""

    def __init__(self, groups: Sequence[Group], problem: Problem) -> None:
        segments = [segment for group in groups for segment in group.segments]
        counts = [len(group.segments) for group in groups]
        self.groups = groups
        self.rows = problem.rows
        self.supply = np.array([row.amount for row in self.rows], np.float64)
        # What an element of each row takes of every row, [rows, rows].
        self.uses = np.array(
            [[row.taken_by(other) for row in self.rows] for other in self.rows], np.float64
        )
        self.members = np.array([len(group.members) for group in groups], np.float64)
        self.first = np.cumsum([0, *counts[:-1]])
        self.group = np.repeat(np.arange(len(groups)), counts)
        line = [(one.start, one.slope, one.least, one.most) for one in segments]
        start, slope, least, most = np.array(line, np.float64).T.copy()
        low = _matrix([one.low for one in segments])
        room = _matrix([one.high for one in segments]) - low
        fixed = low.sum(axis=1)
        self.segments = Segments(start, slope, least - fixed, most - fixed, low, room)

    def only(self, groups: NDArray[np.bool_]) -> Relaxation:
        """Return the same of some groups."""
        some = copy.copy(self)
        kept = np.flatnonzero(groups[self.group])
        some.groups = list(itertools.compress(self.groups, groups.tolist()))
        some.members = self.members[groups]
        some.group = (groups.cumsum() - 1)[self.group[kept]]
        some.first = np.searchsorted(some.group, np.arange(len(some.groups)))
        some.segments = self.segments.only(kept)
        return some

    def choose(self, prices: Reals, there: Reals | None = None) -> Choices:
        """Return each group's best choice at these prices.

        ``there`` has the available elements of each group, [groups, rows]; None means all.
        """
        one, paid = self.segments, self.prices_of(prices)
        room = one.room
        if there is not None:
            beyond = there[self.group] - one.low
            room = np.minimum(room, beyond.clip(0.0))
        order = paid.argsort(kind="stable")
        price = paid[order]
        ends = ends_of(room[:, order])
        most = np.minimum(one.most, ends[:, -1])
        wanted = ends[np.arange(len(ends)), price.searchsorted(one.slope)]  # what pays
        extra = np.minimum(np.maximum(wanted, one.least), most)
        taken = taken_from(ends, extra)
        worth = one.start + one.slope * (extra - one.least)
        net = worth - one.low @ paid - taken @ price
        if there is not None:
            net[(most < one.least) | (beyond < 0.0).any(axis=1)] = -np.inf
        best = np.maximum.reduceat(net, self.first)
        hits = np.flatnonzero(net == best[self.group])
        # The first of several that are equally good.
        rows = hits[np.searchsorted(self.group[hits], np.arange(len(best)))]
        shares = one.low[rows]
        shares[:, order] += taken[rows]
        return Choices(worth[rows], shares, best, net)

    def prices_of(self, prices: Reals) -> Reals:
        """What an element pays, by its row."""
        paid: Reals = self.uses @ prices
        return paid

    def taken(self, shares: Reals) -> Reals:
        """How much of each row shares take, [groups, rows] or [rows]."""
        taken: Reals = shares @ self.uses
        return taken

    def left(self, shares: Reals) -> Reals:
        """What shares, [trainers, rows], leave of each row."""
        left: Reals = self.supply - self.taken(shares.sum(axis=0))
        return left

    def elements_in(self, left: Reals) -> Reals:
        """How many new elements of each row fit into what is left of the rows."""
        fit = np.full(self.uses.shape, np.inf)
        np.floor_divide(left + ROUNDING, self.uses, out=fit, where=self.uses > 0)
        least: Reals = fit.min(axis=1) * [row.frees is None for row in self.rows]
        return least

    def bound_at(self, prices: Reals, least: float = -math.inf) -> Bound:
        """Return the bound at these prices; ``least`` as it has it."""
        choices = self.choose(prices)
        worth = float(self.supply @ prices + self.members @ choices.net)
        return Bound(prices, choices, worth, least)

    def kept(self, bound: Bound, most_loss: float) -> dict[int, list[int]]:
        """Return each group's segments that lose no more, by their places.

        If a plan is known that loses so much, no better one has another segment.
        """
        found: dict[int, list[int]] = defaultdict(list)
        lost = bound.choices.net[self.group] - bound.choices.of_segments
        for at in np.flatnonzero(lost <= most_loss).tolist():
            found[int(self.group[at])].append(at)
        return found

    def highest_price(self) -> float:
        """More than any segment is worth: at this price no trainer wants a node."""
        reach = self.segments.slope.clip(0.0) * self.segments.most
        return float(np.abs(self.segments.start).max() + reach.max()) or 1.0

    def common_price(self) -> Bound:
        """The least bound with one price for all nodes, or all GPUs.

        The price is narrowed down from both sides: trainers take more than there is, or not. The
        bound is convex in the price, and the tangents of both sides meet at the next price.
        """
        per_unit = self.per_unit()

        def tangent(price: float) -> _Tangent:
            choices = self.choose(price * per_unit)
            rows = self.supply - self.taken(self.members @ choices.shares)
            worth = float(self.members @ choices.worth)
            return _Tangent(price, worth, rows, float(rows @ per_unit))

        low, high = tangent(0.0), tangent(self.highest_price())
        if low.left >= 0:
            return self.bound_at(low.price * per_unit, _least(low, low))
        while True:
            price = (low.worth - high.worth) / (high.left - low.left)
            tried = tangent(price)
            inside = low.price < price < high.price
            if tried.bound - low.at(price) <= _SAME * abs(tried.bound) or not inside:
                best = min(low, high, tried, key=lambda one: one.bound)
                return self.bound_at(best.price * per_unit, _least(low, high))
            low, high = (low, tried) if tried.left >= 0 else (tried, high)

    def per_unit(self) -> Reals:
        """How many nodes, or GPUs, one of each row is; 0 for all but a class's smallest size."""
        first = {row.place: number for number, row in reversed(list(enumerate(self.rows)))}
        units = [
            max(1, row.gpus) if first[row.place] == number else 0
            for number, row in enumerate(self.rows)
        ]
        return np.array(units, np.float64)


def _matrix(shares: Sequence[Share]) -> Reals:
    """Return the shares as an array, [shares, rows]; few of them are different."""
    places = {share: at for at, share in enumerate(dict.fromkeys(shares))}
    matrix: Reals = np.array(list(places), np.float64)[[places[share] for share in shares]]
    return matrix


def ends_of(room: Reals) -> Reals:
    """Return where each row ends if rows are taken in this order, [segments, 1 + rows]; 0 first."""
    ends = np.zeros((len(room), room.shape[1] + 1))
    np.cumsum(room, axis=1, out=ends[:, 1:])
    return ends


def taken_from(ends: Reals, count: Reals) -> Reals:
    """Return what so many elements take of each row, in the order of ``ends_of``."""
    taken: Reals = np.diff(np.minimum(ends, count[:, None]), axis=1)
    return taken


def _least(low: _Tangent, high: _Tangent) -> float:
    """Return what no prices have a bound below; -inf: nothing tells.

    If the choices of both sides, mixed so that they leave nothing, leave no row short, then they
    are a solution of the dual's dual: what they are worth is below the bound at any prices.
    """
    part = high.left / (high.left - low.left) if low.left < 0 else 1.0  # of the lower price
    kept = (part * low.rows + (1 - part) * high.rows >= -ROUNDING).all()
    return part * low.worth + (1 - part) * high.worth if kept else -math.inf
