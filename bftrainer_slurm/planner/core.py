"""The core of a problem: what is left once everything is dropped that no better plan can have.

At the prices of the bound, what a size brings less than its bidder's best is its loss. A plan is
worth the bound less all losses and less the price of unused nodes: so a plan that loses no more
than ``most_loss`` has no size of a greater loss.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bftrainer_slurm.planner.bound import Bound
from bftrainer_slurm.planner.classes import Share
from bftrainer_slurm.planner.hills import Hill, hills_of
from bftrainer_slurm.planner.options import Bidder

_SAME = 1e-10  # relative to the bound: losses that differ by less are the same


@dataclass(frozen=True, slots=True)
class Seat:
    """Contenders (by their places) who lose alike by what is left to them."""

    members: tuple[int, ...]
    hills: tuple[Hill, ...]
    stands_in: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """What a solver found of a core: each contender's share by its place, proven the best or not.

    None: there is no plan that loses so little; where that is not proven, none was found.
    """

    shares: dict[int, Share] | None
    optimal: bool


def core_of(bidders: Sequence[Bidder], bound: Bound, most_loss: float) -> list[Seat]:
    """Return everyone with the sizes that lose no more than this.

    Bidders who were different are often alike in the core: of those who shrink to a few nodes, it
    does not matter any more how many they had.
    """
    same = _SAME * abs(bound.value) or 1.0
    alike: dict[object, list[Seat]] = defaultdict(list)
    for bidder in bidders:
        hills = hills_of(bidder, bound.prices, most_loss)
        nature = tuple(_nature(hill, same) for hill in hills)
        alike[bidder.stands_in, nature].append(Seat(bidder.members, hills, bidder.stands_in))
    return [
        replace(seats[0], members=tuple(member for seat in seats for member in seat.members))
        for seats in alike.values()
    ]


def _nature(hill: Hill, same: float) -> object:
    stretches = (
        (stretch.nodes, round(stretch.loss / same), stretch.place)
        for stretch in hill.steps + hill.rooms
    )
    return hill.least, hill.low, round(hill.loss / same), tuple(stretches)
