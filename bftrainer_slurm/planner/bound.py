"""The price of a node, where all nodes are alike, and the bound that it proves.

The dual of the count model: at a price for a node, everyone takes what brings them most after
paying, and no plan is worth more than that and the price of the whole pool. The best price comes
from the upper hulls of what sizes are worth (Dyer 1984, Zemel 1984: the linear relaxation of a
multiple-choice knapsack).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from bftrainer_slurm.planner.options import Bidder, worth_of

_Corner = tuple[int, float]  # (size, what it is worth)


@dataclass(frozen=True, slots=True)
class Bound:
    """No plan is worth more than ``value``; ``prices`` are those of a node, by class."""

    value: float
    prices: tuple[float, ...]


@dataclass(frozen=True, slots=True, order=True)
class _Climb:
    """From one corner of a bidder's hull to the next; the steepest come first."""

    slope_down: float
    bidder: int
    lower: int
    upper: int


def bound_by_price(bidders: Sequence[Bidder], nodes: int) -> Bound:
    """Return the best bound that a price for a node gives."""
    value = sum(len(bidder.members) * bidder.options[0].start for bidder in bidders)
    for climb in _climbs(bidders):
        size = len(bidders[climb.bidder].members) * (climb.upper - climb.lower)
        value -= climb.slope_down * min(size, nodes)
        if size >= nodes:
            return Bound(value, (-climb.slope_down,))
        nodes -= size
    return Bound(value, (0.0,))


def counts_by_price(bidders: Sequence[Bidder], nodes: int) -> dict[int, int]:
    """Return a plan close to the bound: how many nodes each contender gets, by its place.

    As long as nodes are left, the steepest climb is taken; where not all of it fits, the best of
    what does.
    """
    counts = {member: 0 for bidder in bidders for member in bidder.members}
    for climb in _climbs(bidders):
        for member in bidders[climb.bidder].members:
            if counts[member] == climb.lower:
                most = min(climb.upper, climb.lower + nodes)
                counts[member] = _best_size(bidders[climb.bidder], climb.lower, most)
                nodes -= counts[member] - climb.lower
    return counts


def _climbs(bidders: Sequence[Bidder]) -> list[_Climb]:
    climbs = []
    for index, bidder in enumerate(bidders):
        for left, right in itertools.pairwise(_hull(bidder)):
            if right[1] > left[1]:
                climbs.append(_Climb(-_slope(left, right), index, left[0], right[0]))
    return sorted(climbs)


def _hull(bidder: Bidder) -> list[_Corner]:
    """The corners, from no node up, that lie on the upper hull."""
    hull = [(0, bidder.options[0].start)]
    for option in bidder.options:
        for size in (option.least, option.most):
            if size == hull[-1][0]:
                continue
            corner = (size, worth_of(option, size))
            while len(hull) > 1 and _slope(hull[-2], corner) >= _slope(hull[-2], hull[-1]):
                hull.pop()
            hull.append(corner)
    return hull


def _best_size(bidder: Bidder, lower: int, most: int) -> int:
    """The size of the greatest worth from lower to most, of which lower is one."""
    best, size = -math.inf, lower
    for option in bidder.options:
        for end in (max(option.least, lower), min(option.most, most)):
            if (
                option.least <= end <= option.most
                and lower <= end <= most
                and worth_of(option, end) > best
            ):
                best, size = worth_of(option, end), end
    return size


def _slope(left: _Corner, right: _Corner) -> float:
    return (right[1] - left[1]) / (right[0] - left[0])
