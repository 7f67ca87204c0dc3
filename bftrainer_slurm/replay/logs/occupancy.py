"""Which node was busy when, from jobs with node lists; and the holes that this leaves.

Stretches that touch are merged as the log streams by, so that memory grows with the number of
holes, not of jobs, as long as the log is more or less in the order of time.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.replay.logs.holes import HoleTable

_MERGED_AT = 4_000_000  # stretches in the buffer
_NODES_AT_A_TIME = 256
# Node and milliseconds in one number: sorting by it sorts by node, then by time.
_BITS = 43
_FOREVER_MS = 1 << (_BITS - 1)  # the year 2109
_TIME = (1 << _BITS) - 1


class Occupancy:
    """Collects who held which nodes, and merges stretches less than ``min_hole_s`` apart.

    Merging a part of the log at a time is harmless: no other stretch makes such a gap longer.
    """

    def __init__(self, min_hole_s: float) -> None:
        self._min_hole_s = min_hole_s
        self._start_s, self._end_s, self._count = array("d"), array("d"), array("i")
        self._node = array("i")
        self._runs: list[_Stretches] = []
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
        fresh = _stretches(np.array(self._node), np.repeat(start_s, count), np.repeat(end_s, count))
        self._runs.append(_union(fresh, self._min_hole_s))
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
        before = _stretches(node, np.full(len(node), -np.inf), np.full(len(node), from_s))
        after = _stretches(node, np.full(len(node), to_s), np.full(len(node), np.inf))
        busy = _of_nodes(self._runs, first, last)
        begin = np.concatenate([before.begin, busy.begin, after.begin])
        end = np.concatenate([before.end, busy.end, after.end])
        return _gaps(_union(_Stretches(begin, end), self._min_hole_s))


@dataclass(frozen=True, slots=True, eq=False)
class _Stretches:
    """From when to when nodes were busy; one stretch a row."""

    begin: NDArray[np.int64]
    end: NDArray[np.int64]


def _stretches(
    node: NDArray[np.int32], start_s: NDArray[np.float64], end_s: NDArray[np.float64]
) -> _Stretches:
    """Return stretches of these nodes (below 2**20); times are Unix seconds or infinite."""
    return _Stretches(_moment(node, start_s), _moment(node, end_s))


def _moment(node: NDArray[np.int32], time_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the numbers for these nodes at these times."""
    time_ms = np.clip(np.rint(time_s * 1000.0), 0, _FOREVER_MS).astype(np.int64)
    return (node.astype(np.int64) << _BITS) + time_ms


def _union(busy: _Stretches, min_gap_s: float) -> _Stretches:
    """Return the union of stretches, sorted; gaps shorter than ``min_gap_s`` are closed."""
    if not len(busy.begin):
        return busy
    order = np.argsort(busy.begin)
    begin = busy.begin[order]
    # How far any stretch so far reaches; one of the next node always reaches further.
    reach = np.maximum.accumulate(busy.end[order])
    gap_ms = max(1, round(min_gap_s * 1000))
    first = np.flatnonzero(np.insert(begin[1:] - reach[:-1] >= gap_ms, 0, True))
    return _Stretches(begin[first], reach[np.append(first[1:] - 1, len(reach) - 1)])


def _gaps(
    busy: _Stretches,
) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
    """Return what lies between the stretches of each node: node, start and end (Unix seconds).

    The stretches are a union.
    """
    node = (busy.begin >> _BITS).astype(np.int32)
    before = np.flatnonzero(node[1:] == node[:-1])
    start_s = (busy.end[before] & _TIME) / 1000.0
    return node[before], start_s, (busy.begin[before + 1] & _TIME) / 1000.0


def _of_nodes(runs: list[_Stretches], first: int, last: int) -> _Stretches:
    """Return the stretches of nodes ``first`` to ``last`` - 1 from several unions, unsorted."""
    parts = []
    for run in runs:
        begin, end = np.searchsorted(run.begin, [first << _BITS, last << _BITS])
        parts.append((run.begin[begin:end], run.end[begin:end]))
    return _Stretches(
        np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    )
