"""Which node was busy when, from jobs with node lists; and the holes that this leaves.

Stretches that touch are merged as the log streams by, so that memory grows with the number of
holes, not of jobs, as long as the log is more or less in the order of time.
"""

from __future__ import annotations

import math
from array import array

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.replay.logs.holes import HoleTable
from bftrainer_slurm.replay.logs.stretches import Stretches, gaps, of_nodes, stretches, union

_MERGED_AT = 4_000_000  # stretches in the buffer
_NODES_AT_A_TIME = 256


class Occupancy:
    """Collects who held which nodes, and merges stretches less than ``min_hole_s`` apart.

    Merging a part of the log at a time is harmless: no other stretch makes such a gap longer.
    """

    def __init__(self, min_hole_s: float) -> None:
        self._min_hole_s = min_hole_s
        self._start_s, self._end_s, self._count = array("d"), array("d"), array("i")
        self._node = array("i")
        self._runs: list[Stretches] = []
        self._running: dict[int, tuple[NDArray[np.int32], float]] = {}  # by the job's key

    def add(self, nodes: NDArray[np.int32], start_s: float, end_s: float, key: int = 0) -> None:
        """Note that these nodes were busy from then to then (Unix seconds).

        A job that still ran when this part of the log was taken (the end is infinite) may end in a
        later part: its ``key`` tells.
        """
        if math.isinf(end_s) and key:
            self._running[key] = nodes, start_s
            return
        self._running.pop(key, None)
        self._buffer(nodes, start_s, end_s)

    def _buffer(self, nodes: NDArray[np.int32], start_s: float, end_s: float) -> None:
        self._start_s.append(start_s)
        self._end_s.append(end_s)
        self._count.append(len(nodes))
        self._node.frombytes(nodes.tobytes())
        if len(self._node) >= _MERGED_AT:
            self._merge()

    def finish(self) -> None:
        """Take in what is still in the buffer, and the jobs that have no end."""
        for nodes, start_s in self._running.values():
            self._buffer(nodes, start_s, math.inf)
        self._running.clear()
        self._merge()

    def _merge(self) -> None:
        count = np.array(self._count)
        start_s, end_s = np.array(self._start_s), np.array(self._end_s)
        fresh = stretches(np.array(self._node), np.repeat(start_s, count), np.repeat(end_s, count))
        self._runs.append(union(fresh, self._min_hole_s))
        for column in (self._start_s, self._end_s, self._count, self._node):
            del column[:]

    def holes(self, nodes: tuple[str, ...], from_s: float, to_s: float) -> HoleTable:
        """Return when these nodes had no job, between two times and cut there."""
        found = [
            self._holes_of(first, min(first + _NODES_AT_A_TIME, len(nodes)), from_s, to_s)
            for first in range(0, len(nodes), _NODES_AT_A_TIME)
        ]
        node, start_s, end_s = (np.concatenate(column) for column in zip(*found, strict=True))
        return HoleTable(nodes, node, start_s, end_s)

    def _holes_of(
        self, first: int, last: int, from_s: float, to_s: float
    ) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
        node = np.arange(first, last, dtype=np.int32)
        before = stretches(node, np.full(len(node), -np.inf), np.full(len(node), from_s))
        after = stretches(node, np.full(len(node), to_s), np.full(len(node), np.inf))
        busy = of_nodes(self._runs, first, last)
        begin = np.concatenate([before.begin, busy.begin, after.begin])
        end = np.concatenate([before.end, busy.end, after.end])
        return gaps(union(Stretches(begin, end), self._min_hole_s))
