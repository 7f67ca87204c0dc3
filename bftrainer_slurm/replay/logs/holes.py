"""Holes as arrays: what millions of them are kept in, and how they become a trace.

``HoleTable`` is a column a field; one hole is one row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.replay.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class HoleTable:
    """Holes, one a row: which node, from when to when (Unix seconds); sorted by node and start."""

    nodes: tuple[str, ...]
    node: NDArray[np.int32]  # [holes] index into nodes
    start_s: NDArray[np.float64]  # [holes]
    end_s: NDArray[np.float64]  # [holes]

    @property
    def length_s(self) -> NDArray[np.float64]:
        """How long each hole lasted, in seconds."""
        return self.end_s - self.start_s


def holes_in(trace: Trace) -> HoleTable:
    """Return the holes of a trace; one that is still open is cut where the trace ends."""
    order = np.lexsort((trace.time_s, trace.node))  # stable: equal times keep their order
    node, time_s, idle = trace.node[order], trace.time_s[order], trace.idle[order]
    repeated = (node[1:] == node[:-1]) & (idle[1:] == idle[:-1])
    kept = ~np.concatenate([np.zeros(min(1, len(node)), bool), repeated])
    node, time_s, idle = node[kept], time_s[kept], idle[kept]
    ends = np.append(node[1:] == node[:-1], False)[: len(node)]  # by the node's next row
    end_s = np.where(ends, np.append(time_s[1:], 0.0)[: len(node)], trace.end_s)
    return HoleTable(trace.nodes, node[idle], time_s[idle], end_s[idle])


def trace_of_holes(holes: HoleTable, end_s: float) -> Trace:
    """Return the trace of these holes; those that last until ``end_s`` stay open."""
    closing = holes.end_s < end_s
    time_s = np.concatenate([holes.start_s, holes.end_s[closing]])
    node = np.concatenate([holes.node, holes.node[closing]])
    idle = np.concatenate([np.ones(len(holes.node), bool), np.zeros(int(closing.sum()), bool)])
    order = np.lexsort((node, idle, time_s))
    return Trace(holes.nodes, time_s[order], node[order], idle[order], end_s)


def between(holes: HoleTable, from_s: float, to_s: float) -> HoleTable:
    """Return what of these holes lies between two times."""
    start_s, end_s = np.maximum(holes.start_s, from_s), np.minimum(holes.end_s, to_s)
    kept = start_s < end_s
    return HoleTable(holes.nodes, holes.node[kept], start_s[kept], end_s[kept])


def longer(holes: HoleTable, least_s: float) -> HoleTable:
    """Return those of the holes that last so many seconds or more."""
    kept = holes.length_s >= least_s
    return HoleTable(holes.nodes, holes.node[kept], holes.start_s[kept], holes.end_s[kept])
