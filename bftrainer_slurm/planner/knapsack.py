"""The best counts where one row of the supply is scarce: a dynamic programme, exact and fast.

With parts of nodes, elements of several sizes share the rows, and CBC takes long to prove which of
many nearly equal combinations fills them. Most often one row alone has a price: the GPUs in all, of
one class. Then this is a multiple-choice knapsack, and reduced-cost fixing leaves each trainer a
few sizes (Pisinger, "A minimal algorithm for the multiple-choice knapsack problem", EJOR 83, 1995).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.planner.dual import Dual
from bftrainer_slurm.planner.lagrangian import Reals, Relaxation, ends_of, taken_from
from bftrainer_slurm.planner.problem import Share

_MOST_CELLS = 100_000_000  # numbers of units, for all options
_MOST_COUNTS = 5_000_000  # of options, by row
_ROUNDING = 1e-12  # relative


@dataclass(frozen=True, slots=True, eq=False)
class _Options:
    """What a member of each group may have: shares, what they take of the row, and their losses."""

    group: NDArray[np.int64]  # ascending
    shares: Reals  # [options, rows]
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
    options = _options(relaxation, dual, row, most_loss)
    if options is None:
        return None
    ends = np.searchsorted(options.group, np.arange(len(relaxation.groups) + 1))
    parts = list(map(slice, ends[:-1].tolist(), ends[1:].tolist()))
    alone = [(part, member) for part, group in zip(parts, relaxation.groups, strict=True)
             for member in group.members]  # fmt: skip
    alone.sort(key=lambda one: one[0].stop - one[0].start)
    least = np.minimum.reduceat(options.units, ends[:-1])
    spread = np.maximum.reduceat(options.units, ends[:-1]) - least
    room = int(relaxation.supply[row]) - int(relaxation.members @ least)
    width = min(room, int(relaxation.members @ spread)) + 1
    if room < 0 or width * sum(part.stop - part.start for part, _ in alone) > _MOST_CELLS:
        return None
    price = float(dual.prices[row])
    found = _filled(options, [part for part, _ in alone], room, price, most_loss)
    shares = options.shares[found].astype(int).tolist()
    by_member = sorted(zip((member for _, member in alone), map(tuple, shares), strict=True))
    return [share for _, share in by_member]


def _options(relaxation: Relaxation, dual: Dual, row: int, most_loss: float) -> _Options | None:
    """Return all sizes that lose no more than this; None if they are too many."""
    best, uses = dual.choices.net, relaxation.uses
    floor = best - np.maximum(most_loss, _ROUNDING * np.abs(best))
    kept = np.flatnonzero(dual.choices.of_segments >= floor[relaxation.group])
    segments = relaxation.segments.only(kept)
    counts = (segments.most - segments.least).astype(int) + 1
    if counts.sum() * len(uses) > _MOST_COUNTS:
        return None
    at = np.repeat(np.arange(len(kept)), counts)
    beyond = np.arange(len(at)) - (counts.cumsum() - counts)[at]
    # Elements that take least of this row come first; of those the ones that take least of all.
    order = np.lexsort((uses.sum(axis=1), uses[:, row]))
    shares = segments.low[at]
    ends = ends_of(segments.room[:, order])[at]
    shares[:, order] += taken_from(ends, segments.least[at] + beyond)
    units, group = shares @ uses[:, row], relaxation.group[kept[at]]
    worth = segments.start[at] + segments.slope[at] * beyond - float(dual.prices[row]) * units
    losses = np.maximum(0.0, best[group] - worth)
    good = np.flatnonzero(losses <= (best - floor)[group])
    return _Options(group[good], shares[good], units[good].astype(np.int64), losses[good])


def _filled(
    options: _Options, parts: Sequence[slice], room: int, price: float, most_loss: float
) -> NDArray[np.int64]:
    """Return an option of each part: those of the least loss, with the price of what is left.

    Numbers of units whose least loss exceeds that of others by more than ``most_loss`` are dropped.
    """
    least, low = np.zeros(1), 0  # by numbers of units from ``low``
    steps: list[tuple[int, NDArray[np.int64], NDArray[np.int64]]] = []
    for part in parts:
        more = options.units[part] - options.units[part].min()
        most = int(more.max())
        reached = np.arange(min(len(least) + most, room + 1 - low))
        before = np.full(len(least) + 2 * most, np.inf)
        before[most : most + len(least)] = least
        tried = before[most + reached - more[:, None]] + options.losses[part][:, None]
        chosen = tried.argmin(axis=0)
        steps.append((low, chosen, more))
        least = tried[chosen, reached]
        kept = np.flatnonzero(least <= least.min() + most_loss)
        low, least = low + int(kept[0]), least[kept[0] : kept[-1] + 1]
    at = low + int((least + price * (room - low - np.arange(len(least)))).argmin())
    found = np.zeros(len(parts), np.int64)
    for turn, (first, chosen, more) in reversed(list(enumerate(steps))):
        number = chosen[at - first]
        found[turn] = parts[turn].start + number
        at -= int(more[number])
    return found
