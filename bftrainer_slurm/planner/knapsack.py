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

from bftrainer_slurm.planner.lagrangian import Bound, Reals, Relaxation, ends_of, taken_from
from bftrainer_slurm.planner.problem import Problem, Share, value
from bftrainer_slurm.planner.supply import ROUNDING

_MOST_CELLS = 400_000_000  # numbers of units, for all options: some seconds
_MOST_CHOICES = 50_000_000  # numbers of units, for all trainers: four bytes each
_MOST_COUNTS = 100_000_000  # counts by row, for all options before their losses are known
_AT_ONCE = 2_000_000  # of these, so that they need little memory
_ROUNDING = 1e-12  # relative
_FIRST_LOSS, _WIDER = 1e-4, 8.0  # of the bound, and times: few options suffice most often


class _TooLargeError(Exception):
    """There are too many options or units: this would take too long, or too much memory."""


@dataclass(frozen=True, slots=True, eq=False)
class _Options:
    """What a member of each group may have: shares, what they take of the row, and their losses."""

    group: NDArray[np.int64]  # ascending
    shares: Reals  # [options, rows]
    units: NDArray[np.int64]
    losses: Reals


def exact_counts(
    problem: Problem, relaxation: Relaxation, bound: Bound, most_loss: float
) -> list[Share] | None:
    """Return the best counts if one row alone is scarce, and they are not too many; else None.

    No plan that loses more than ``most_loss`` is of interest, as a better one is known.
    """
    row = _scarce_row(relaxation, bound)
    if row is None:
        return None
    tried = min(most_loss, _FIRST_LOSS * abs(bound.worth))
    while True:
        try:
            found = _best_counts(relaxation, bound, row, tried)
        except _TooLargeError:
            return None
        if found is not None and bound.worth - value(problem, found) <= tried:
            left = relaxation.left(np.array(found, np.float64))
            return found if (left >= -ROUNDING).all() else None
        if tried >= most_loss:
            return None
        tried = min(most_loss, _WIDER * tried)


def _scarce_row(relaxation: Relaxation, bound: Bound) -> int | None:
    """Return the row that alone has a price, None if it cannot be filled by ``_best_counts``.

    It cannot if there are several classes, or elements that take fractions of it.
    """
    priced = np.flatnonzero(bound.prices).tolist()
    if len(priced) != 1 or len({row.place for row in relaxation.rows}) > 1:
        return None
    return None if (relaxation.uses[:, priced] % 1).any() else int(priced[0])


def _best_counts(
    relaxation: Relaxation, bound: Bound, row: int, most_loss: float
) -> list[Share] | None:
    """Return the counts of the least loss where this row alone is scarce.

    No trainer loses more than ``most_loss``; None if no such counts fit. Other rows are not looked
    at.

    Raises:
        _TooLargeError: there are too many.
    """
    options = _options(relaxation, bound, row, most_loss)
    ends = np.searchsorted(options.group, np.arange(len(relaxation.groups) + 1))
    parts = list(map(slice, ends[:-1].tolist(), ends[1:].tolist()))
    alone = [(part, member) for part, group in zip(parts, relaxation.groups, strict=True)
             for member in group.members]  # fmt: skip
    alone.sort(key=lambda one: one[0].stop - one[0].start)
    least = np.minimum.reduceat(options.units, ends[:-1])
    spread = np.maximum.reduceat(options.units, ends[:-1]) - least
    room = int(relaxation.supply[row]) - int(relaxation.members @ least)
    width = min(room, int(relaxation.members @ spread)) + 1
    if room < 0:
        return None
    cells = width * sum(part.stop - part.start for part, _ in alone)
    if cells > _MOST_CELLS or width * len(alone) > _MOST_CHOICES:
        raise _TooLargeError
    price = float(bound.prices[row])
    found = _filled(options, [part for part, _ in alone], room, price, most_loss)
    shares = options.shares[found].astype(int).tolist()
    by_member = sorted(zip((member for _, member in alone), map(tuple, shares), strict=True))
    return [share for _, share in by_member]


def _options(relaxation: Relaxation, bound: Bound, row: int, most_loss: float) -> _Options:
    """Return all sizes that lose no more than this. Raises _TooLargeError."""
    best, segments = bound.choices.net, relaxation.segments
    floor = best - np.maximum(most_loss, _ROUNDING * np.abs(best))
    kept = np.flatnonzero(bound.choices.of_segments >= floor[relaxation.group])
    ends = np.cumsum(segments.most[kept] - segments.least[kept] + 1) * len(relaxation.rows)
    if ends[-1] > _MOST_COUNTS:
        raise _TooLargeError
    cuts = np.unique(np.searchsorted(ends, np.arange(_AT_ONCE, ends[-1], _AT_ONCE)))
    parts = [_of_segments(relaxation, bound, row, floor, one) for one in np.split(kept, cuts)]
    columns = zip(*((one.group, one.shares, one.units, one.losses) for one in parts), strict=True)
    group, shares, units, losses = map(np.concatenate, columns)
    return _Options(group, shares, units, losses)


def _of_segments(
    relaxation: Relaxation, bound: Bound, row: int, floor: Reals, kept: NDArray[np.int64]
) -> _Options:
    """Return the sizes of these segments whose net worth is not below their group's floor."""
    best, uses = bound.choices.net, relaxation.uses
    segments = relaxation.segments.only(kept)
    counts = (segments.most - segments.least).astype(int) + 1
    at = np.repeat(np.arange(len(kept)), counts)
    beyond = np.arange(len(at)) - (counts.cumsum() - counts)[at]
    # Elements that take least of this row come first; of those the ones that take least of all.
    order = np.lexsort((uses.sum(axis=1), uses[:, row]))
    shares = segments.low[at]
    ends = ends_of(segments.room[:, order])[at]
    shares[:, order] += taken_from(ends, segments.least[at] + beyond)
    units, group = shares @ uses[:, row], relaxation.group[kept[at]]
    worth = segments.start[at] + segments.slope[at] * beyond - float(bound.prices[row]) * units
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
    steps: list[tuple[int, NDArray[np.int32], NDArray[np.int64]]] = []
    for part in parts:
        more = options.units[part] - options.units[part].min()
        most = int(more.max())
        reached = np.arange(min(len(least) + most, room + 1 - low))
        before = np.full(len(least) + 2 * most, np.inf)
        before[most : most + len(least)] = least
        tried = before[most + reached - more[:, None]] + options.losses[part][:, None]
        chosen = tried.argmin(axis=0)
        steps.append((low, chosen.astype(np.int32), more))
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
