"""How many nodes were busy when, from an SWF log; and holes of nodes without names.

The idle nodes are a stack: the node freed last is taken first. That keeps how many nodes are idle
at any time and how many holes begin, but not how long the hole of a real node was.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.replay.logs.holes import HoleTable
from bftrainer_slurm.replay.logs.jobs import JobTable

_NODES_AT_A_TIME = 256  # bounds the memory, whatever the size of the machine


class Counts:
    """How many nodes these jobs had, each of them whole nodes."""

    def __init__(self, jobs: JobTable) -> None:
        time_s = np.concatenate([jobs.start_s, jobs.end_s])
        self._time_s, where = np.unique(time_s, return_inverse=True)
        change = np.bincount(where, np.concatenate([jobs.nodes, -jobs.nodes]), len(self._time_s))
        self._busy = np.cumsum(change).astype(np.int64)

    def peak(self, from_s: float, to_s: float) -> int:
        """Return the most nodes that were busy at once in this time."""
        _, busy = self._between(from_s, to_s)
        return max(0, int(busy.max()))

    def holes(self, nodes: int, min_hole_s: float, from_s: float, to_s: float) -> HoleTable:
        """Return holes of nodes that have only numbers, between two times and cut there."""
        time_s, busy = self._between(from_s, to_s)
        idle = np.append(np.clip(nodes - busy, 0, nodes), 0)  # at the end all holes are cut
        time_s = np.append(time_s, to_s)
        found = []
        for first in range(0, nodes, _NODES_AT_A_TIME):
            here = np.clip(idle - first, 0, _NODES_AT_A_TIME)
            level, start_s, end_s = _levels(time_s, here)
            kept = end_s - start_s >= min_hole_s
            found.append((level[kept] + np.int32(first), start_s[kept], end_s[kept]))
        node, start_s, end_s = (np.concatenate(column) for column in zip(*found, strict=True))
        digits = len(str(max(nodes - 1, 0)))
        names = tuple(f"node{number:0{digits}}" for number in range(nodes))
        return HoleTable(names, node, start_s, end_s)

    def _between(self, from_s: float, to_s: float) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return times and the number of busy nodes from each on; the first time is ``from_s``."""
        first = int(np.searchsorted(self._time_s, from_s, side="right"))
        last = int(np.searchsorted(self._time_s, to_s, side="left"))
        already = self._busy[first - 1] if first else 0
        time_s = np.insert(self._time_s[first:last], 0, from_s)
        return time_s, np.insert(self._busy[first:last], 0, already)


def _levels(
    time_s: NDArray[np.float64], idle: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
    """Return the stretches in which more than 0, more than 1, ... nodes are idle.

    ``idle`` is how many are idle from each of the times on, none from the last one on. Returns
    level, start and end, sorted by level and start.
    """
    before = np.insert(idle[:-1], 0, 0)
    change = np.abs(idle - before)
    row = np.repeat(np.arange(len(time_s), dtype=np.int32), change)
    within = np.arange(len(row)) - np.repeat(np.cumsum(change) - change, change)
    level = (np.minimum(idle, before)[row] + within).astype(np.int32)
    # Per level, beginnings and ends alternate: a level is idle, then it is not.
    order = np.argsort(level, kind="stable")
    when_s = time_s[row[order]]
    return level[order][0::2], when_s[0::2], when_s[1::2]
