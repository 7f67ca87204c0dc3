"""Which node was busy when, from jobs with node lists; and the holes that this leaves.

Stretches that touch are merged as the log streams by, so that memory grows with the number of
holes, not of jobs, as long as the log is more or less in the order of time.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """Collects which nodes were busy, and merges stretches less than ``min_hole_s`` apart.

    Merging a part of the log at a time is harmless: no other stretch makes such a gap longer.
    """

    def __init__(self, min_hole_s: float) -> None:
        self._min_hole_s = min_hole_s
        self._buffer: list[tuple[NDArray[np.int32], float, float]] = []
        self._buffered = 0
        self._runs: list[_Stretches] = []

    def add(self, nodes: NDArray[np.int32], start_s: float, end_s: float) -> None:
        """Note that these nodes were busy between two times (Unix seconds)."""
        self._buffer.append((nodes, start_s, end_s))
        self._buffered += len(nodes)
        if self._buffered >= _MERGED_AT:
            self._merge()

    def _merge(self) -> None:
        if not self._buffer:
            return
        nodes, *times_s = zip(*self._buffer, strict=True)
        counts = list(map(len, nodes))
        fresh = _stretches(np.concatenate(nodes), *(np.repeat(one, counts) for one in times_s))
        self._runs.append(_union(fresh, self._min_hole_s))
        self._buffer, self._buffered = [], 0

    def holes(self, nodes: tuple[str, ...], from_s: float, to_s: float) -> HoleTable:
        """Return when these nodes had no job, between two times and cut there."""
        self._merge()
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
        return _gaps(_union(_joined([before, busy, after]), self._min_hole_s))


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


def _joined(parts: Sequence[_Stretches]) -> _Stretches:
    none = np.empty(0, np.int64)
    return _Stretches(
        np.concatenate([none, *(one.begin for one in parts)]),
        np.concatenate([none, *(one.end for one in parts)]),
    )


def _union(busy: _Stretches, min_gap_s: float) -> _Stretches:
    """Return the union of stretches, sorted; gaps shorter than ``min_gap_s`` are closed."""
    if not len(busy.begin):
        return busy
    order = np.argsort(busy.begin)
    begin = busy.begin[order]
    # The latest end of all stretches so far; a stretch of the next node always ends later.
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
        parts.append(_Stretches(run.begin[begin:end], run.end[begin:end]))
    return _joined(parts)
