"""The core of a problem: what is left once everything is dropped that no better plan can have.

At the prices of the bound, what an option brings less than its bidder's best is its loss. A plan
is worth the bound less all losses and less the price of unused nodes: so a plan that loses no more
than ``most_loss`` has no option of a greater loss.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from bftrainer_slurm.planner.bound import Bound
from bftrainer_slurm.planner.classes import Share
from bftrainer_slurm.planner.options import Bidder, Option, worth_of

_ROUNDING = 1e-9  # of a node
_SLACK = 1e-12  # relative, of what an option brings
_SAME = 1e-10  # relative to the bound: losses that differ by less are the same


@dataclass(frozen=True, slots=True)
class Cut:
    """What is left of an option: ``least`` to ``most`` nodes, ``low`` to ``high`` of each class.

    With the nodes of ``low`` it loses ``loss``, and with each one more ``losses`` by its class.
    """

    least: int
    most: int
    low: Share
    high: Share
    loss: float
    losses: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Seat:
    """Contenders (by their places) who lose alike by what is left to them."""

    members: tuple[int, ...]
    cuts: tuple[Cut, ...]


def core_of(bidders: Sequence[Bidder], bound: Bound, most_loss: float) -> list[Seat]:
    """Return the core, its options cut to the sizes that lose no more than this.

    Bidders who were different are often alike in it: of those who shrink to a few nodes, it does
    not matter any more how many they had.
    """
    same = _SAME * abs(bound.value) or 1.0
    alike: dict[object, list[Seat]] = defaultdict(list)
    for bidder in bidders:
        seat = Seat(bidder.members, _cuts(bidder, bound.prices, most_loss))
        nature = tuple(
            (cut.least, cut.most, cut.low, cut.high)
            + tuple(round(loss / same) for loss in (cut.loss, *cut.losses))
            for cut in seat.cuts
        )
        alike[nature].append(seat)
    return [
        Seat(tuple(member for seat in seats for member in seat.members), seats[0].cuts)
        for seats in alike.values()
    ]


def _cuts(bidder: Bidder, prices: tuple[float, ...], most_loss: float) -> tuple[Cut, ...]:
    costs = tuple(price + charge for price, charge in zip(prices, bidder.charges, strict=True))
    nets = [_corners(option, costs) for option in bidder.options]
    best = max(net for corners in nets for _, net in corners)
    floor = best - most_loss - _SLACK * abs(best)
    cuts: list[Cut] = []
    for option, corners in zip(bidder.options, nets, strict=True):
        if max(net for _, net in corners) < floor:
            continue
        cut = _cut(option, costs, corners, best, floor)
        if cuts and cuts[-1].most == cut.least and cuts[-1].high == cut.low == cut.high:
            continue  # a corner that the piece before has too
        if cuts and cuts[-1].most == cut.least and cuts[-1].low == cuts[-1].high == cut.low:
            cuts.pop()
        cuts.append(cut)
    return tuple(cuts)


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
    inner = (size for size in ends if option.least < size < option.most)
    corners = []
    for size in sorted({option.least, option.most, *inner}):
        left, cost = size - least, paid
        for price, room in rooms:
            cost += price * min(left, room)
            left -= min(left, room)
        corners.append((size, worth_of(option, size) - cost))
    return corners


def _cut(
    option: Option,
    costs: tuple[float, ...],
    corners: list[tuple[int, float]],
    best: float,
    floor: float,
) -> Cut:
    """Keep the sizes that bring at least ``floor``: they are neighbours, since it is concave."""
    least = _first_above(corners, floor)
    most = -_first_above([(-size, net) for size, net in reversed(corners)], floor)
    low, high = option.low, option.high
    open_classes = [place for place in range(len(low)) if high[place] > low[place]]
    if len(open_classes) == 1:  # whose number the size says
        rest = sum(low) - low[open_classes[0]]
        low = _with(low, open_classes[0], least - rest)
        high = _with(high, open_classes[0], most - rest)
    paid = sum(count * cost for count, cost in zip(low, costs, strict=True))
    losses = (
        cost - option.slope if has > at_least else 0.0
        for cost, at_least, has in zip(costs, low, high, strict=True)
    )
    return Cut(least, most, low, high, best - worth_of(option, sum(low)) + paid, tuple(losses))


def _first_above(corners: list[tuple[int, float]], floor: float) -> int:
    """The first size from the left that brings at least this; there is one."""
    if corners[0][1] >= floor:
        return corners[0][0]
    right = next(place for place, (_, net) in enumerate(corners) if net >= floor)
    (x0, y0), (x1, y1) = corners[right - 1], corners[right]
    return math.ceil(x0 + (floor - y0) / (y1 - y0) * (x1 - x0) - _ROUNDING)


def _with(share: Share, place: int, count: int) -> Share:
    return (*share[:place], count, *share[place + 1 :])
