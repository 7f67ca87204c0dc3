"""The core problem: what reduced-cost fixing leaves of a problem.

At the dual's prices, a size's reduced cost is its loss: how much less it brings than its group's
best size. A plan is worth the bound, less all losses, less the price of unused nodes. So a plan
that loses no more than ``most_loss`` has no size with a greater loss. Such sizes are dropped, and
most trainers are left with one size.

The rest is cut into concave segments. Within a segment, the numbers of nodes of each class are a
linear problem; only the choice of the segment is not.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bftrainer_slurm.planner.dual import Dual
from bftrainer_slurm.planner.lagrangian import Relaxation
from bftrainer_slurm.planner.problem import Share
from bftrainer_slurm.planner.segments import Segment

_SAME = 1e-10  # relative to the greatest loss: losses that differ by less are the same
_ROUNDING = 1e-9  # of a node
_SLACK = 1e-12  # relative, of what a segment brings

_Prices = tuple[float, ...]  # of a node by row
_Corner = tuple[int, float]  # (size, its worth after paying for the nodes)


@dataclass(frozen=True, slots=True)
class Stretch:
    """So many more nodes, each of which loses this much; of one class if ``place`` is set."""

    nodes: int
    loss: float
    place: int = 0


@dataclass(frozen=True, slots=True)
class ConcaveSegment:
    """Sizes from ``least`` up that use ``low`` nodes of each class in any case.

    ``loss`` is that of the least size, with its other nodes from the cheapest class. ``steps`` are
    the sizes above it; each of ``rooms`` is a class for nodes beyond ``low``, with their extra
    loss there.
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
class CoreGroup:
    """Trainers (by their places) with the same losses for their remaining sizes."""

    members: tuple[int, ...]
    segments: tuple[ConcaveSegment, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """Some sizes of a segment."""

    segment: Segment
    least: int
    most: int


def core_of(relaxation: Relaxation, dual: Dual, most_loss: float) -> list[CoreGroup]:
    """Return all groups with the sizes that lose no more than this.

    Different groups are often alike in the core: if trainers shrink to a few nodes, it no longer
    matters how many they had.
    """
    best = dual.choices.net
    prices = tuple(map(float, relaxation.prices_of(dual.prices)))
    floors = best - most_loss - _SLACK * np.abs(best)
    kept = np.flatnonzero(dual.choices.of_segments >= floors[relaxation.group])
    alike: dict[object, list[CoreGroup]] = defaultdict(list)
    for index, places in itertools.groupby(kept.tolist(), key=lambda one: relaxation.group[one]):
        group, first = relaxation.groups[index], relaxation.first[index]
        parts = (_part(group.segments[one - first], prices, floors[index]) for one in places)
        segments = tuple(_concave(run, prices, float(best[index])) for run in _runs(parts))
        nature = tuple(_nature(one, _SAME * most_loss) for one in segments)
        alike[nature].append(CoreGroup(group.members, segments))
    return [
        replace(same[0], members=tuple(itertools.chain(*(one.members for one in same))))
        for same in alike.values()
    ]


def _nature(segment: ConcaveSegment, same: float) -> object:
    stretches = (
        (stretch.nodes, round(stretch.loss / same), stretch.place)
        for stretch in segment.steps + segment.rooms
    )
    return segment.least, segment.low, round(segment.loss / same), tuple(stretches)


def _part(segment: Segment, prices: _Prices, floor: float) -> _Part:
    """The sizes worth at least ``floor``: they are neighbours, because a segment is concave."""
    corners = _corners(segment, prices)
    most = -_first_above([(-size, net) for size, net in reversed(corners)], floor)
    return _Part(segment, _first_above(corners, floor), most)


def _corners(segment: Segment, prices: _Prices) -> list[_Corner]:
    """The sizes at which the slope changes, if the cheapest nodes are taken first."""
    fixed = sum(segment.low)
    paid = _paid(segment.low, prices)
    rooms = sorted(
        (price, high - low)
        for price, low, high in zip(prices, segment.low, segment.high, strict=True)
        if high > low
    )
    ends = itertools.accumulate((room for _, room in rooms), initial=fixed)
    inner = (size for size in ends if segment.least < size < segment.most)
    corners = []
    for size in sorted({segment.least, segment.most, *inner}):
        left, cost = size - fixed, paid
        for price, room in rooms:
            cost += price * min(left, room)
            left -= min(left, room)
        corners.append((size, segment.worth(size) - cost))
    return corners


def _paid(share: Share, prices: _Prices) -> float:
    return sum(count * price for count, price in zip(share, prices, strict=True))


def _first_above(corners: Sequence[_Corner], floor: float) -> int:
    """The first size from the left that is worth at least this; the best size is."""
    floor = min(floor, max(net for _, net in corners))
    if corners[0][1] >= floor:
        return corners[0][0]
    right = next(place for place, (_, net) in enumerate(corners) if net >= floor)
    (x0, y0), (x1, y1) = corners[right - 1], corners[right]
    return math.ceil(x0 + (floor - y0) / (y1 - y0) * (x1 - x0) - _ROUNDING)


def _runs(parts: Iterable[_Part]) -> list[list[_Part]]:
    """Join parts that are concave together; a corner of two parts belongs to one of them."""
    runs: list[list[_Part]] = []
    for part in parts:
        last = runs[-1][-1] if runs else None
        if last is None or not _goes_on(last, part):
            runs.append([part])
        elif last.least == last.most:
            runs[-1][-1] = part
        elif part.least < part.most:
            if part.segment.slope <= last.segment.slope:
                runs[-1].append(part)
            else:
                runs.append([part])
    return runs


def _goes_on(last: _Part, part: _Part) -> bool:
    """Whether this part begins where the last one ends, and the nodes are of the same classes."""
    boxes = (last.segment.low, last.segment.high) == (part.segment.low, part.segment.high)
    return boxes and last.most == part.least and last.segment.most == part.segment.least


def _concave(run: Sequence[_Part], prices: _Prices, best: float) -> ConcaveSegment:
    segment, least, most = run[0].segment, run[0].least, run[-1].most
    low, high = segment.low, segment.high
    open_places = [place for place in range(len(low)) if high[place] > low[place]]
    if len(open_places) == 1:  # all nodes that can still be chosen are of one class
        (place,) = open_places
        low = (*low[:place], least - sum(low) + low[place], *low[place + 1 :])
    cheapest = min((prices[place] for place in open_places), default=0.0)
    fixed = sum(low)
    return ConcaveSegment(
        least=least,
        low=low,
        loss=best - segment.worth(least) + _paid(low, prices) + cheapest * (least - fixed),
        steps=tuple(
            Stretch(part.most - part.least, cheapest - part.segment.slope)
            for part in run
            if part.most > part.least
        ),
        rooms=tuple(
            Stretch(min(high[place] - low[place], most - fixed), prices[place] - cheapest, place)
            for place in open_places
            if most > fixed
        ),
    )
