"""Hills: the sizes of a bidder, near its best at the prices of nodes, where its worth is concave.

Within a hill, how many nodes and of which class is a linear matter: only which hill is a choice.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from bftrainer_slurm.planner.classes import Share
from bftrainer_slurm.planner.options import Bidder, Option, worth_of

_ROUNDING = 1e-9  # of a node
_SLACK = 1e-12  # relative, of what an option brings

_Costs = tuple[float, ...]  # of a node by class: its price and its charge
_Corner = tuple[int, float]  # (size, what it brings after paying)


@dataclass(frozen=True, slots=True)
class Stretch:
    """So many nodes more, each of which loses this much; by class where ``place`` says so."""

    nodes: int
    loss: float
    place: int = 0


@dataclass(frozen=True, slots=True)
class Hill:
    """Sizes from ``least`` up, at which ``low`` of each class are used in any case.

    ``loss`` is that of the least size, all its other nodes from the cheapest class. ``steps`` are
    the sizes above it; each of ``rooms`` is a class that nodes beyond ``low`` may be of, and what
    they lose more there.
    """

    least: int
    low: Share
    loss: float
    steps: tuple[Stretch, ...]
    rooms: tuple[Stretch, ...]

    @property
    def most(self) -> int:
        """The largest size."""
        return self.least + sum(step.nodes for step in self.steps)

    @property
    def places(self) -> frozenset[int]:
        """The classes that its nodes may be of."""
        low = {place for place, count in enumerate(self.low) if count}
        return frozenset(low | {room.place for room in self.rooms})


@dataclass(frozen=True, slots=True)
class _Part:
    """Some sizes of an option."""

    option: Option
    least: int
    most: int


def hills_of(bidder: Bidder, prices: tuple[float, ...], most_loss: float) -> tuple[Hill, ...]:
    """Return all sizes that lose no more than this against the bidder's best."""
    costs = tuple(price + charge for price, charge in zip(prices, bidder.charges, strict=True))
    corners = [_corners(option, costs) for option in bidder.options]
    best = max(net for one in corners for _, net in one)
    floor = best - most_loss - _SLACK * abs(best)
    parts = (
        _part(option, one, floor)
        for option, one in zip(bidder.options, corners, strict=True)
        if max(net for _, net in one) >= floor
    )
    return tuple(_hill(run, costs, best) for run in _runs(parts))


def _corners(option: Option, costs: _Costs) -> list[_Corner]:
    """Where the slope changes, when the cheapest nodes are taken first."""
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


def _part(option: Option, corners: list[_Corner], floor: float) -> _Part:
    """The sizes that bring at least ``floor``: they are neighbours, since an option is concave."""
    most = -_first_above([(-size, net) for size, net in reversed(corners)], floor)
    return _Part(option, _first_above(corners, floor), most)


def _first_above(corners: list[_Corner], floor: float) -> int:
    """The first size from the left that brings at least this; there is one."""
    if corners[0][1] >= floor:
        return corners[0][0]
    right = next(place for place, (_, net) in enumerate(corners) if net >= floor)
    (x0, y0), (x1, y1) = corners[right - 1], corners[right]
    return math.ceil(x0 + (floor - y0) / (y1 - y0) * (x1 - x0) - _ROUNDING)


def _runs(parts: Iterator[_Part]) -> list[list[_Part]]:
    """Join what is concave together; a corner that two parts share is in one of them."""
    runs: list[list[_Part]] = []
    for part in parts:
        last = runs[-1][-1] if runs else None
        if last is None or not _goes_on(last, part):
            runs.append([part])
        elif last.least == last.most:
            runs[-1][-1] = part
        elif part.least < part.most:
            if part.option.slope <= last.option.slope:
                runs[-1].append(part)
            else:
                runs.append([part])
    return runs


def _goes_on(last: _Part, part: _Part) -> bool:
    """Whether this part begins where the last one ends, and the nodes are of the same classes."""
    boxes = (last.option.low, last.option.high) == (part.option.low, part.option.high)
    return boxes and last.most == part.least and last.option.most == part.option.least


def _hill(run: list[_Part], costs: _Costs, best: float) -> Hill:
    option, least, most = run[0].option, run[0].least, run[-1].most
    low, high = option.low, option.high
    open_places = [place for place in range(len(low)) if high[place] > low[place]]
    if len(open_places) == 1:  # all nodes that are left to choose are of one class
        rest = sum(low) - low[open_places[0]]
        low = (*low[: open_places[0]], least - rest, *low[open_places[0] + 1 :])
    cheapest = min((costs[place] for place in open_places), default=0.0)
    paid = sum(count * cost for count, cost in zip(low, costs, strict=True))
    beyond, extra = least - sum(low), most - sum(low)
    return Hill(
        least=least,
        low=low,
        loss=best - worth_of(option, least) + paid + cheapest * beyond,
        steps=tuple(
            Stretch(part.most - part.least, cheapest - part.option.slope)
            for part in run
            if part.most > part.least
        ),
        rooms=tuple(
            Stretch(min(high[place] - low[place], extra), costs[place] - cheapest, place)
            for place in open_places
            if extra
        ),
    )
