"""The best counts where one row of the supply is scarce: a dynamic programme, exact and fast.

With parts of nodes, elements of several sizes share the rows, and CBC takes long to prove which of
many nearly equal combinations fills them. Most often one row alone has a price: the GPUs in all, of
one class. Then this is a multiple-choice knapsack, and reduced-cost fixing leaves each trainer a
few sizes (Pisinger, "A minimal algorithm for the multiple-choice knapsack problem", EJOR 83, 1995).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.planner.dual import Dual
from bftrainer_slurm.planner.lagrangian import Reals, Relaxation
from bftrainer_slurm.planner.problem import Share

_MOST_CELLS = 50_000_000  # of the table of choices: a byte or two each


@dataclass(frozen=True, slots=True, eq=False)
class _Options:
    """What one trainer may have: numbers of nodes, what they take of the row, and their losses.

    ``rows`` are those of which the elements are.
    """

    member: int
    sizes: NDArray[np.int64]
    rows: NDArray[np.int64]
    units: NDArray[np.int64]
    losses: Reals


def best_counts(relaxation: Relaxation, dual: Dual, most_loss: float) -> list[Share] | None:
    """Return the counts of the least loss, at most ``most_loss``, if one row alone is scarce.

    Other rows are not looked at. None if several rows have a price, or there are several classes.
    """
    priced = np.flatnonzero(dual.prices)
    if len(priced) > 1 or len({row.place for row in relaxation.rows}) > 1:
        return None
    row = int(priced[0]) if len(priced) else 0
    options = [one for group in range(len(relaxation.groups))
               for one in _options(relaxation, dual, row, group, most_loss)]  # fmt: skip
    options.sort(key=lambda one: len(one.sizes))
    base = sum(int(one.units.min()) for one in options)
    room = int(relaxation.supply[row]) - base
    spread = sum(int(one.units.max() - one.units.min()) for one in options)
    width = min(room, spread) + 1
    if room < 0 or width * len(options) > _MOST_CELLS:
        return None
    return _filled(options, width, room, float(dual.prices[row]), len(relaxation.rows))


def _options(
    relaxation: Relaxation, dual: Dual, row: int, number: int, most_loss: float
) -> list[_Options]:
    """Return the sizes of a group that lose no more than this, for each member."""
    group = relaxation.groups[number]
    prices = relaxation.prices_of(dual.prices)
    own = [int(np.argmax(one.high)) for one in group.segments]  # elements of a segment are alike
    sizes = [np.arange(one.least, one.most + 1) for one in group.segments]
    nets = [
        one.start + one.slope * (size - one.least) - prices[its] * size
        for one, size, its in zip(group.segments, sizes, own, strict=True)
    ]
    every, rows = np.concatenate(sizes), np.repeat(own, list(map(len, sizes)))
    losses = np.maximum(0.0, dual.choices.net[number] - np.concatenate(nets))
    kept = losses <= max(most_loss, float(losses.min()))
    units = (every * relaxation.uses[rows, row]).astype(np.int64)
    found = (every[kept], rows[kept], units[kept], losses[kept])
    return [_Options(member, *found) for member in group.members]


def _filled(
    options: list[_Options], width: int, room: int, price: float, rows: int
) -> list[Share] | None:
    """Return the combination of the least loss; what is left of the room loses its price."""
    least, reach = np.zeros(1), 1
    choices: list[NDArray[np.int32]] = []
    for one in options:
        more = one.units - one.units.min()
        reach = min(width, len(least) + int(more.max()))
        after, chosen = np.full(reach, np.inf), np.zeros(reach, np.int32)
        for number, (units, loss) in enumerate(
            zip(more.tolist(), one.losses.tolist(), strict=True)
        ):
            count = min(len(least), reach - units)
            if count <= 0:
                continue
            tried, here = least[:count] + loss, slice(units, units + count)
            better = tried < after[here]
            after[here][better] = tried[better]
            chosen[here][better] = number
        least = after
        choices.append(chosen)
    left = room - np.arange(len(least))
    at = int((least + price * left).argmin())
    shares: dict[int, Share] = {}
    for one, chosen in zip(reversed(options), reversed(choices), strict=True):
        number = int(chosen[at])
        share = [0] * rows
        share[int(one.rows[number])] = int(one.sizes[number])
        shares[one.member] = tuple(share)
        at -= int(one.units[number] - one.units.min())
    return [shares[member] for member in range(len(options))]
