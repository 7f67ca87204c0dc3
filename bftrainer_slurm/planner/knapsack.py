"""The best counts where one row of the supply is scarce: a dynamic programme, exact and fast.

With parts of nodes, elements of several sizes share the rows, and CBC takes long to prove which of
many nearly equal combinations fills them. Most often one row alone has a price: the GPUs in all, of
one class. Then this is a multiple-choice knapsack, and reduced-cost fixing leaves each trainer a
few sizes (Pisinger, "A minimal algorithm for the multiple-choice knapsack problem", EJOR 83, 1995).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.planner.dual import Dual
from bftrainer_slurm.planner.lagrangian import Reals, Relaxation
from bftrainer_slurm.planner.problem import Share

_MOST_CELLS = 50_000_000  # of the table of choices: a byte or two each
_ROUNDING = 1e-12  # relative
_Share: TypeAlias = tuple[Share, NDArray[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class _Options:
    """What one trainer may have: shares, what they take of the row, and their losses.

    A share is a segment's least one, and the rows of its other elements.
    """

    member: int
    shares: Sequence[_Share]
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
    if (relaxation.uses[:, row] % 1).any():
        return None
    # Elements that take least of this row come first; of those the ones that take least of all.
    order = np.lexsort((relaxation.uses.sum(axis=1), relaxation.uses[:, row]))
    options = [one for group in range(len(relaxation.groups))
               for one in _options(relaxation, dual, (row, order), group, most_loss)]  # fmt: skip
    options.sort(key=lambda one: len(one.shares))
    base = sum(int(one.units.min()) for one in options)
    room = int(relaxation.supply[row]) - base
    spread = sum(int(one.units.max() - one.units.min()) for one in options)
    width = min(room, spread) + 1
    if room < 0 or width * len(options) > _MOST_CELLS:
        return None
    return _filled(options, width, room, float(dual.prices[row]), len(relaxation.rows))


def _options(
    relaxation: Relaxation,
    dual: Dual,
    by: tuple[int, NDArray[np.int64]],
    number: int,
    most_loss: float,
) -> list[_Options]:
    """Return the sizes of a group that lose no more than this, for each member.

    ``by`` is the scarce row, and the order in which elements of the rows are taken.
    """
    row, order = by
    group, best = relaxation.groups[number], dual.choices.net[number]
    first, price, uses = relaxation.first[number], float(dual.prices[row]), relaxation.uses[:, row]
    nets = dual.choices.of_segments[first : first + len(group.segments)]
    floor = best - max(most_loss, _ROUNDING * abs(best))
    shares, units, losses = list[_Share](), [], []
    for at in np.flatnonzero(nets >= floor).tolist():
        one = group.segments[at]
        low, fixed = np.array(one.low), sum(one.low)
        beyond = np.repeat(order, (np.array(one.high) - low)[order])[: one.most - fixed]
        taken = low @ uses + np.concatenate(([0.0], uses[beyond].cumsum()))
        size = np.arange(one.least, one.most + 1)
        its = taken[size - fixed]
        loss = np.maximum(0.0, best - (one.start + one.slope * (size - one.least) - price * its))
        kept = np.flatnonzero(loss <= best - floor)
        shares += [(one.low, beyond[: count - fixed]) for count in size[kept].tolist()]
        units.append(its[kept])
        losses.append(loss[kept])
    found = (shares, np.concatenate(units).astype(np.int64), np.concatenate(losses))
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
        low, more = one.shares[number]
        shares[one.member] = tuple((low + np.bincount(more, minlength=rows)).tolist())
        at -= int(one.units[number] - one.units.min())
    return [shares[member] for member in range(len(options))]
