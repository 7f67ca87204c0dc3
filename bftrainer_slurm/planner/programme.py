"""The best plan of a core by a dynamic programme, where all nodes are alike.

Exact, and done with a small core before CBC has its model; a core that is too large is CBC's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.planner.core import Answer, Seat

MOST_WORK = 30_000_000  # sums in all, which take about 0.2 s

_Whole = NDArray[np.intp]
_Reals = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Offer:
    """The sizes that a contender can have, and what it loses by each."""

    member: int
    sizes: _Whole
    losses: _Reals

    @property
    def least(self) -> int:
        return int(self.sizes.min())

    @property
    def most(self) -> int:
        return int(self.sizes.max())


@dataclass(frozen=True, slots=True)
class _Table:
    """The least that the contenders so far lose by using ``first``, ``first`` + 1, ... nodes.

    ``chosen`` is the size that the last of them then has.
    """

    first: int
    losses: _Reals
    chosen: _Whole

    @property
    def last(self) -> int:
        return self.first + len(self.losses) - 1


def best_counts(seats: Sequence[Seat], nodes: int, price: float, most_loss: float) -> Answer:
    """Find the plan of the least loss, at most ``most_loss``; an unused node loses the price."""
    offers = [offer for seat in seats for offer in _offers(seat, most_loss)]
    if not all(len(offer.sizes) for offer in offers):
        return Answer(None, True)
    offers.sort(key=lambda offer: len(offer.sizes))
    settled = [offer for offer in offers if len(offer.sizes) == 1]
    still_open = offers[len(settled) :]
    counts = {offer.member: offer.least for offer in settled}
    nodes -= sum(counts.values())
    tables = [_Table(0, np.array([sum(float(one.losses[0]) for one in settled)]), np.zeros(1, int))]
    unused = nodes if price * nodes <= most_loss else int(most_loss / price)
    work = 0
    for offer, span in zip(still_open, _spans(still_open, nodes - unused, nodes), strict=True):
        first = max(span[0], tables[-1].first + offer.least)
        last = min(span[1], tables[-1].last + offer.most)
        work += len(offer.sizes) * (last - first + 1)
        if work > MOST_WORK:
            return Answer(None, False)
        table = _with(tables[-1], offer, first, last, most_loss)
        if table is None:
            return Answer(None, True)
        tables.append(table)
    used = _least_loss(tables[-1], nodes, price, most_loss)
    if used is None:
        return Answer(None, True)
    for offer, table in zip(reversed(still_open), reversed(tables), strict=False):
        counts[offer.member] = int(table.chosen[used - table.first])
        used -= counts[offer.member]
    return Answer({member: (count,) for member, count in counts.items()}, True)


def _offers(seat: Seat, most_loss: float) -> list[_Offer]:
    """What is left to each of the seat's members below this loss."""
    sizes = np.concatenate([np.arange(hill.least, hill.most + 1) for hill in seat.hills])
    losses = np.concatenate(
        [
            np.cumsum([hill.loss, *(step.loss for step in hill.steps for _ in range(step.nodes))])
            for hill in seat.hills
        ]
    )
    kept = losses <= most_loss
    return [_Offer(member, sizes[kept], losses[kept]) for member in seat.members]


def _spans(offers: Sequence[_Offer], least: int, most: int) -> list[tuple[int, int]]:
    """How many nodes contenders up to each may use, so that all use ``least`` to ``most``."""
    spans = []
    for offer in reversed(offers):
        spans.append((least, most))
        least, most = least - offer.most, most - offer.least
    return spans[::-1]


def _with(table: _Table, offer: _Offer, first: int, last: int, most_loss: float) -> _Table | None:
    """The table with one contender more; None where everything loses more than this."""
    before = np.arange(first, last + 1) - offer.sizes[:, None] - table.first
    walled = np.concatenate([[np.inf], table.losses, [np.inf]])
    sums = walled[before.clip(-1, len(table.losses)) + 1] + offer.losses[:, None]
    chosen = sums.argmin(axis=0)
    losses = sums.min(axis=0)
    kept = np.flatnonzero(losses <= most_loss)
    if not len(kept):
        return None
    part = slice(kept[0], kept[-1] + 1)
    return _Table(first + int(kept[0]), losses[part], offer.sizes[chosen[part]])


def _least_loss(table: _Table, nodes: int, price: float, most_loss: float) -> int | None:
    """How many nodes everyone uses at the least loss; None where that is more than this."""
    used = np.arange(table.first, table.last + 1)
    losses = np.where(used <= nodes, table.losses + price * (nodes - used), np.inf)
    return int(used[losses.argmin()]) if losses.min() <= most_loss else None
