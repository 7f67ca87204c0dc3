"""The core of a problem: what is left once everything is dropped that no better plan can have.

At the prices of the bound, what an option brings less than its bidder's best is its loss. A plan
is worth the bound less all losses and less the price of unused nodes: so a plan that loses no more
than ``most_loss`` has no option of a greater loss.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from bftrainer_slurm.planner.classes import Share
from bftrainer_slurm.planner.options import Bidder, Option, worth_of

_ROUNDING = 1e-9  # of a node
_SLACK = 1e-12  # relative, of what an option brings


@dataclass(frozen=True, slots=True)
class Seat:
    """A bidder in the core: the options left to it, and what the best brings after paying."""

    bidder: Bidder
    costs: tuple[float, ...]  # of a node by class: its price and its charge
    best: float
    options: tuple[Option, ...]


def core_of(bidders: Sequence[Bidder], prices: tuple[float, ...], most_loss: float) -> list[Seat]:
    """Return the core, its options cut to the sizes that lose no more than this."""
    return [_seat(bidder, prices, most_loss) for bidder in bidders]


def _seat(bidder: Bidder, prices: tuple[float, ...], most_loss: float) -> Seat:
    costs = tuple(price + charge for price, charge in zip(prices, bidder.charges, strict=True))
    nets = [_corners(option, costs) for option in bidder.options]
    best = max(net for corners in nets for _, net in corners)
    floor = best - most_loss - _SLACK * abs(best)
    options: list[Option] = []
    for option, corners in zip(bidder.options, nets, strict=True):
        cut = _cut(option, corners, floor)
        if cut and not (options and _is_same(options[-1], cut)):
            options.append(cut)
    return Seat(bidder, costs, best, tuple(options))


def _corners(option: Option, costs: tuple[float, ...]) -> list[tuple[int, float]]:
    """Sizes where the slope changes, and what they bring after paying for the cheapest nodes."""
    least = sum(option.low)
    paid = sum(count * cost for count, cost in zip(option.low, costs, strict=True))
    rooms = sorted(
        (cost, high - low)
        for cost, low, high in zip(costs, option.low, option.high, strict=True)
        if high > low
    )
    ends = itertools.accumulate((room for _, room in rooms), initial=least)
    sizes = sorted(
        {option.least, option.most, *(n for n in ends if option.least < n < option.most)}
    )
    corners = []
    for size in sizes:
        left, cost = size - least, paid
        for price, room in rooms:
            cost += price * min(left, room)
            left -= min(left, room)
        corners.append((size, worth_of(option, size) - cost))
    return corners


def _cut(option: Option, corners: list[tuple[int, float]], floor: float) -> Option | None:
    """The option's sizes that bring at least this: they are neighbours, since it is concave."""
    if max(net for _, net in corners) < floor:
        return None
    least = _first_above(corners, floor)
    most = -_first_above([(-size, net) for size, net in reversed(corners)], floor)
    low, high = option.low, option.high
    open_classes = [k for k in range(len(low)) if high[k] > low[k]]
    if len(open_classes) == 1:  # whose number the size says
        rest = sum(low) - low[open_classes[0]]
        low = _with(low, open_classes[0], least - rest)
        high = _with(high, open_classes[0], most - rest)
    slope = option.slope if most > least else 0.0
    return Option(least, most, worth_of(option, least), slope, low, high)


def _first_above(corners: list[tuple[int, float]], floor: float) -> int:
    """The first size from the left that brings at least this; there is one."""
    if corners[0][1] >= floor:
        return corners[0][0]
    right = next(place for place, (_, net) in enumerate(corners) if net >= floor)
    (x0, y0), (x1, y1) = corners[right - 1], corners[right]
    return math.ceil(x0 + (floor - y0) / (y1 - y0) * (x1 - x0) - _ROUNDING)


def _with(share: Share, place: int, count: int) -> Share:
    return (*share[:place], count, *share[place + 1 :])


def _is_same(one: Option, other: Option) -> bool:
    """Whether these are one corner, which two pieces of a curve share."""
    return one.most == other.least and (one.low, one.high) == (other.low, other.high)
