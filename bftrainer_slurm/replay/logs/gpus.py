"""GPUs over time: how many of each node no ordinary job has, idle nodes and half-used ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.replay.logs.hardware import Stretches
from bftrainer_slurm.replay.logs.holes import HoleTable, next_s
from bftrainer_slurm.replay.trace import HOUR_S

_LITTLE = 1e-6  # of a GPU


@dataclass(frozen=True, slots=True, eq=False)
class FreeGpus:
    """From ``time_s`` on, ``free`` GPUs of a node; a row a change, by time.

    ``has`` is how many each node has. All of them are free only while it has no job at all: a job
    without GPUs keeps one, as a trainer may not have the whole node then. Times are Unix seconds.
    """

    names: tuple[str, ...]
    has: NDArray[np.int64]  # [nodes]
    time_s: NDArray[np.float64]  # [rows]
    node: NDArray[np.int64]
    free: NDArray[np.int64]
    from_s: float
    to_s: float

    def between(self, from_s: float, to_s: float) -> FreeGpus:
        """Return a part of the time; it begins with what is free then."""
        kept = self.time_s < to_s
        time_s = np.maximum(self.time_s[kept], from_s)
        return _rows(self.names, self.has, time_s, self.node[kept], self.free[kept], from_s, to_s)

    def hours(self, gpus: int = 1, in_use: bool | None = None) -> float:
        """Return the GPU-hours that elements of so many GPUs can have, one beside the other.

        ``in_use``: only in nodes that have a job, or only in those that have none.
        """
        order = np.lexsort((self.time_s, self.node))
        node, time_s, free = self.node[order], self.time_s[order], self.free[order]
        until_s = next_s(node, time_s, self.to_s)
        whole = free == self.has[node]
        of = np.ones(len(node), bool) if in_use is None else whole != in_use
        fit = free // gpus * gpus
        return float((fit * (until_s - time_s))[of].sum()) / HOUR_S


def free_gpus(
    names: tuple[str, ...],
    has: NDArray[np.int64],
    jobs: Stretches,
    holes: HoleTable,
    unusable: Iterable[HoleTable],
    span_s: tuple[float, float],
) -> FreeGpus | None:
    """Return what jobs leave; ``holes`` are times without any job; None if no node has a GPU."""
    if not has.any():
        return None
    node, start_s, end_s, gpus = jobs
    taken = [(node.astype(np.int64), start_s, end_s, gpus)]
    taken += [
        (one.node.astype(np.int64), one.start_s, one.end_s, has[one.node].astype(float))
        for one in unusable
    ]
    parts = []
    for at, begin_s, until_s, count in taken:
        none = np.zeros(len(at))
        parts += [(at, begin_s, count, none), (at, until_s, -count, none)]
    one = np.ones(len(holes.node))
    of_hole = holes.node.astype(np.int64)
    parts += [(of_hole, holes.start_s, 0 * one, one), (of_hole, holes.end_s, 0 * one, -one)]
    every = np.arange(len(has))  # so that each node has a row
    parts.append((every, np.full(len(has), -np.inf), np.zeros(len(has)), np.zeros(len(has))))
    at, time_s, change, idle = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((time_s, at))
    at, time_s = at[order], time_s[order]
    used, empty = _within(at, change[order]), _within(at, idle[order])
    left = np.floor(has[at] - used + _LITTLE).astype(np.int64)
    most = np.where(empty > 0.5, has[at], has[at] - 1)
    free = np.clip(left, 0, np.maximum(most, 0))
    return _rows(names, has, time_s, at, free, *span_s).between(*span_s)


def _within(node: NDArray[np.int64], change: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the running sum of each node's changes; rows are sorted by node."""
    total = np.cumsum(change)
    first = np.searchsorted(node, node)
    before: NDArray[np.float64] = total - (total[first] - change[first])
    return before


def _rows(
    names: tuple[str, ...],
    has: NDArray[np.int64],
    time_s: NDArray[np.float64],
    node: NDArray[np.int64],
    free: NDArray[np.int64],
    from_s: float,
    to_s: float,
) -> FreeGpus:
    """Of several rows of a node at one time only the last counts; rows come in their order."""
    order = np.lexsort((np.arange(len(node)), time_s, node))
    node, time_s, free = node[order], time_s[order], free[order]
    last = np.append((node[1:] != node[:-1]) | (time_s[1:] != time_s[:-1]), True)[: len(node)]
    node, time_s, free = node[last], time_s[last], free[last]
    changes = np.insert((node[1:] != node[:-1]) | (free[1:] != free[:-1]), 0, True)[: len(node)]
    node, time_s, free = node[changes], time_s[changes], free[changes]
    by_time = np.lexsort((node, time_s))
    return FreeGpus(names, has, time_s[by_time], node[by_time], free[by_time], from_s, to_s)
