"""GPUs that no job had: in idle nodes, and in half-used ones by how many are free together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.replay.logs.hardware import Stretches
from bftrainer_slurm.replay.logs.holes import HoleTable, next_s
from bftrainer_slurm.replay.trace import HOUR_S

SIZES = (1, 2, 4, 8)  # GPUs of an element, for what finds room
_LITTLE = 1e-6  # of a GPU


@dataclass(frozen=True, slots=True)
class FreeGpus:
    """GPU-hours that no ordinary job had: in idle nodes, and in nodes that had a job.

    ``together`` has those of the latter by how many were free at once on a node; ``fit`` is how
    many of them elements of so many GPUs find room for, one beside the other. A job without GPUs
    keeps one: not all GPUs of a node that has a job are free.
    """

    idle_nodes: float
    together: dict[int, float]
    fit: dict[int, float]

    @property
    def used_nodes(self) -> float:
        """Those in nodes that had a job."""
        return sum(self.together.values())

    @property
    def total(self) -> float:
        """All of them."""
        return self.idle_nodes + self.used_nodes


def free_gpus(
    has: NDArray[np.int64],
    jobs: Stretches,
    holes: HoleTable,
    unusable: HoleTable | None,
    span_s: tuple[float, float],
) -> FreeGpus | None:
    """Return what jobs leave between two times (Unix seconds); None if no node has a GPU.

    ``has`` [nodes] are each node's GPUs, ``holes`` times without any job, ``unusable`` those in
    which nodes were down or reserved.
    """
    if not has.any():
        return None
    every = np.arange(len(has))  # so that each node has a row
    down = () if unusable is None else (unusable,)
    stretches: list[tuple[NDArray[Any], ...]] = [  # node, from, to, GPUs taken, holes
        (every, np.full(len(has), -np.inf), np.full(len(has), np.inf), 0 * has, 0 * has),
        (*jobs, 0 * jobs[3]),
        *((one.node, one.start_s, one.end_s, has[one.node], 0 * one.node) for one in down),
        (holes.node, holes.start_s, holes.end_s, 0 * holes.node, 0 * holes.node + 1),
    ]
    parts = []
    for at, start_s, end_s, taken, hole in stretches:
        parts += [(at, start_s, taken, hole), (at, end_s, -taken, -hole)]
    at, time_s, change, idle = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((time_s, at))
    at, time_s = at[order], time_s[order]
    used, empty = _within(at, change[order]), _within(at, idle[order])
    left = np.floor(has[at] - used + _LITTLE).astype(np.int64)
    most = np.where(empty > 0, has[at], has[at] - 1)
    free = np.clip(left, 0, np.maximum(most, 0))
    begins_s, ends_s = np.maximum(time_s, span_s[0]), next_s(at, time_s, span_s[1])
    hours = free * np.clip(np.minimum(ends_s, span_s[1]) - begins_s, 0.0, None) / HOUR_S
    whole = free == has[at]
    by_free = np.bincount(free[~whole], hours[~whole]).tolist()
    together = {count: of for count, of in enumerate(by_free) if of > 0}
    fit = {
        size: sum(of * (count // size * size) / count for count, of in together.items())
        for size in SIZES
        if size < has.max()
    }
    return FreeGpus(float(hours[whole].sum()), together, fit)


def _within(node: NDArray[np.integer], change: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the running sum of each node's changes; rows are sorted by node."""
    total = np.cumsum(change)
    first = np.searchsorted(node, node)
    before: NDArray[np.float64] = total - (total[first] - change[first])
    return before
