"""Which node was busy when, from jobs with node lists; and the holes that this leaves.

Busy stretches that touch are merged as the log streams by, so that memory grows with the number
of holes, not of jobs.
"""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.replay.logs.edges import Edges
from bftrainer_slurm.replay.logs.holes import HoleTable

_MERGED_AT = 4_000_000  # stretches in the buffer


class Occupancy:
    """Collects who held which nodes, and merges stretches less than ``min_hole_s`` apart."""

    def __init__(self, min_hole_s: float, edges: Edges) -> None:
        self._min_hole_s = min_hole_s
        self._edges = edges
        self._start_s, self._end_s, self._count = array("d"), array("d"), array("i")
        self._node = array("i")
        self._merged = Stretches.none()

    def add(self, nodes: NDArray[np.int32], start_s: float, end_s: float) -> None:
        """Note that these nodes were busy from then to then (Unix seconds, end may be infinite)."""
        self._start_s.append(start_s)
        self._end_s.append(end_s)
        self._count.append(len(nodes))
        self._node.frombytes(nodes.tobytes())
        if len(self._node) >= max(_MERGED_AT, len(self._merged.node)):
            self._merge()

    def _merge(self) -> None:
        count = np.array(self._count)
        start_s, end_s = np.array(self._start_s), np.array(self._end_s)
        self._edges.add(start_s, end_s, count.astype(float))
        fresh = Stretches(np.array(self._node), np.repeat(start_s, count), np.repeat(end_s, count))
        self._merged = merge(self._merged.and_those(fresh), self._min_hole_s)
        for column in (self._start_s, self._end_s, self._count, self._node):
            del column[:]

    def finish(self) -> None:
        """Take in what is still in the buffer."""
        self._merge()

    def holes(self, nodes: tuple[str, ...], from_s: float, to_s: float) -> HoleTable:
        """Return when these nodes had no job, between two times and cut there."""
        everywhere = np.arange(len(nodes), dtype=np.int32)
        never = np.full(len(nodes), -np.inf), np.full(len(nodes), from_s)
        ever = np.full(len(nodes), to_s), np.full(len(nodes), np.inf)
        outside = Stretches(everywhere, *never).and_those(Stretches(everywhere, *ever))
        busy = merge(self._merged.and_those(outside), self._min_hole_s)
        gap = np.flatnonzero(busy.node[1:] == busy.node[:-1])
        return HoleTable(nodes, busy.node[gap], busy.end_s[gap], busy.start_s[gap + 1])


class Stretches:
    """Columns of busy stretches: node number, start and end (Unix seconds)."""

    __slots__ = ("end_s", "node", "start_s")

    def __init__(
        self, node: NDArray[np.int32], start_s: NDArray[np.float64], end_s: NDArray[np.float64]
    ) -> None:
        self.node, self.start_s, self.end_s = node, start_s, end_s

    @classmethod
    def none(cls) -> Stretches:
        """No stretch at all."""
        return cls(np.empty(0, np.int32), np.empty(0), np.empty(0))

    def and_those(self, others: Stretches) -> Stretches:
        """These and others, unsorted."""
        return Stretches(
            np.concatenate([self.node, others.node]),
            np.concatenate([self.start_s, others.start_s]),
            np.concatenate([self.end_s, others.end_s]),
        )


def merge(busy: Stretches, min_gap_s: float) -> Stretches:
    """Return the union of busy stretches, sorted; gaps shorter than ``min_gap_s`` are closed.

    Closing early is harmless: no later stretch can make such a gap longer.
    """
    if not len(busy.node):
        return busy
    node = np.concatenate([busy.node, busy.node])
    time_s = np.concatenate([busy.start_s, busy.end_s])
    step = np.repeat(np.array([1, -1], np.int8), len(busy.node))
    order = np.lexsort((-step, time_s, node))  # at equal times starts come first: touching is one
    node, time_s = node[order], time_s[order]
    depth = np.cumsum(step[order], dtype=np.int32)
    last = np.flatnonzero(depth == 0)
    first = np.concatenate([[0], last[:-1] + 1])
    with np.errstate(invalid="ignore"):  # a job that never ends, then the next node: inf - inf
        wide = time_s[first[1:]] - time_s[last[:-1]] >= min_gap_s
    apart = wide | (node[first[1:]] != node[last[:-1]])
    first, last = first[np.insert(apart, 0, True)], last[np.append(apart, True)]
    return Stretches(node[first], time_s[first], time_s[last])
