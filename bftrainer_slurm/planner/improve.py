"""Makes a good plan better: many trainers change their sizes at once, to corners of their hills.

Where all nodes are alike. CBC proves more the sooner, the better the plan is that it has to beat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.planner.core import Seat

_REACH = 512  # nodes that all changes so far may add or give back

_Losses = dict[int, float]  # what a size loses, by the change from the size before


def improve(
    seats: Sequence[Seat], counts: Mapping[int, int], nodes: int, price: float
) -> dict[int, int]:
    """Return the sizes of the least loss within reach, by the contenders' places.

    A dynamic programme over how many nodes more or less the contenders so far have; ``nodes`` is
    the whole pool, ``price`` what an unused one loses. It may miss the best: sizes between
    corners, and what is out of reach.
    """
    members = [(member, seat) for seat in seats for member in seat.members]
    least = np.full(2 * _REACH + 1, np.inf)
    least[_REACH] = 0.0
    choices: list[tuple[list[int], NDArray[np.intp]]] = []
    for member, seat in members:
        losses = _losses(seat, counts[member])
        changes = list(losses)
        rows = np.stack([_moved(least, change) + losses[change] for change in changes])
        taken = rows.argmin(axis=0)
        choices.append((changes, taken))
        least = rows.min(axis=0)
    free = nodes - sum(counts.values())
    unused = free - np.arange(-_REACH, _REACH + 1)
    place = int(np.where(unused >= 0, least + price * unused, np.inf).argmin())
    better = dict(counts)
    for (member, _), (changes, taken) in zip(reversed(members), reversed(choices), strict=True):
        change = changes[taken[place]]
        better[member] += change
        place -= change
    return better


def _losses(seat: Seat, count: int) -> _Losses:
    """At the corners of its hills, and at the size that it has."""
    losses: _Losses = {}
    for hill in seat.hills:
        size, loss = hill.least, hill.loss
        losses[size - count] = min(loss, losses.get(size - count, loss))
        for step in hill.steps:
            if size < count < size + step.nodes:
                losses[0] = loss + step.loss * (count - size)
            size, loss = size + step.nodes, loss + step.loss * step.nodes
            losses[size - count] = min(loss, losses.get(size - count, loss))
    return losses


def _moved(least: NDArray[np.float64], change: int) -> NDArray[np.float64]:
    """Shifted by so many nodes; what would come from out of reach is infinite."""
    moved = np.full_like(least, np.inf)
    if abs(change) < len(least):
        into, out_of = slice(max(0, change), None), slice(max(0, -change), None)
        room = len(least) - abs(change)
        moved[into][:room] = least[out_of][:room]
    return moved
