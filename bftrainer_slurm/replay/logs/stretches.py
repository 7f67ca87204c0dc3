"""Busy stretches of nodes in two columns of whole numbers, and their union.

A number is node and milliseconds in one, so that sorting by it sorts by node, then by time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_BITS = 43
_FOREVER_MS = 1 << (_BITS - 1)  # the year 2109
_TIME = (1 << _BITS) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Stretches:
    """From when to when nodes were busy; one stretch a row."""

    begin: NDArray[np.int64]
    end: NDArray[np.int64]


def stretches(
    node: NDArray[np.int32], start_s: NDArray[np.float64], end_s: NDArray[np.float64]
) -> Stretches:
    """Return stretches of these nodes (below 2**20); times are Unix seconds or infinite."""
    return Stretches(moment(node, start_s), moment(node, end_s))


def moment(node: NDArray[np.int32], time_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the numbers for these nodes at these times."""
    time_ms = np.clip(np.rint(time_s * 1000.0), 0, _FOREVER_MS).astype(np.int64)
    return (node.astype(np.int64) << _BITS) + time_ms


def union(busy: Stretches, min_gap_s: float) -> Stretches:
    """Return the union of stretches, sorted; gaps shorter than ``min_gap_s`` are closed."""
    if not len(busy.begin):
        return busy
    order = np.argsort(busy.begin)
    begin = busy.begin[order]
    # How far any stretch so far reaches; one of the next node always reaches further.
    reach = np.maximum.accumulate(busy.end[order])
    gap_ms = max(1, round(min_gap_s * 1000))
    first = np.flatnonzero(np.insert(begin[1:] - reach[:-1] >= gap_ms, 0, True))
    return Stretches(begin[first], reach[np.append(first[1:] - 1, len(reach) - 1)])


def gaps(
    busy: Stretches,
) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
    """Return what lies between the stretches of each node: node, start and end (Unix seconds).

    The stretches are a union.
    """
    node = (busy.begin >> _BITS).astype(np.int32)
    before = np.flatnonzero(node[1:] == node[:-1])
    start_s = (busy.end[before] & _TIME) / 1000.0
    return node[before], start_s, (busy.begin[before + 1] & _TIME) / 1000.0


def of_nodes(runs: list[Stretches], first: int, last: int) -> Stretches:
    """Return the stretches of nodes ``first`` to ``last`` - 1 from several unions, unsorted."""
    parts = []
    for run in runs:
        begin, end = np.searchsorted(run.begin, [first << _BITS, last << _BITS])
        parts.append((run.begin[begin:end], run.end[begin:end]))
    return Stretches(
        np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    )
