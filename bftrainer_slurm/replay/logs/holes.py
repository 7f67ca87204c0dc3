"""Holes as arrays, for millions of them: how they become a trace, and how much idle time they have.

``HoleTable`` has a column for each field and a row for each hole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.grid import coverage
from bftrainer_slurm.replay.trace import Trace, TraceError


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
    end_s = next_s(node, time_s, trace.end_s)
    return HoleTable(trace.nodes, node[idle], time_s[idle], end_s[idle])


def next_s(
    node: NDArray[np.integer], time_s: NDArray[np.float64], end_s: float
) -> NDArray[np.float64]:
    """Return when the next row of the same node comes; ``end_s`` after a node's last row."""
    same = np.append(node[1:] == node[:-1], False)[: len(node)]
    return np.where(same, np.append(time_s[1:], 0.0)[: len(node)], end_s)


def trace_of_holes(holes: HoleTable, start_s: float, end_s: float) -> Trace:
    """Return the trace of these holes; those that last until ``end_s`` stay open."""
    closing = holes.end_s < end_s
    time_s = np.concatenate([holes.start_s, holes.end_s[closing]])
    node = np.concatenate([holes.node, holes.node[closing]])
    idle = np.concatenate([np.ones(len(holes.node), bool), np.zeros(int(closing.sum()), bool)])
    order = np.lexsort((node, idle, time_s))
    return Trace(holes.nodes, time_s[order], node[order], idle[order], start_s, end_s)


def between(holes: HoleTable, from_s: float, to_s: float) -> HoleTable:
    """Return the parts of these holes between two times."""
    start_s, end_s = np.maximum(holes.start_s, from_s), np.minimum(holes.end_s, to_s)
    kept = start_s < end_s
    return HoleTable(holes.nodes, holes.node[kept], start_s[kept], end_s[kept])


def minus(holes: HoleTable, others: HoleTable) -> HoleTable:
    """Return the parts of these holes outside the others, which all lie inside these."""
    node = np.concatenate([holes.node, holes.node, others.node, others.node])
    time_s = np.concatenate([holes.start_s, holes.end_s, others.start_s, others.end_s])
    one, other = np.ones(len(holes.node), np.int8), np.ones(len(others.node), np.int8)
    order = np.lexsort((time_s, node))
    level = np.cumsum(np.concatenate([one, -one, -other, other])[order], dtype=np.int32)
    node, time_s = node[order], time_s[order]
    begins = np.flatnonzero((level[:-1] > 0) & (time_s[1:] > time_s[:-1]))
    return HoleTable(holes.nodes, node[begins], time_s[begins], time_s[begins + 1])


def longer(holes: HoleTable, least_s: float) -> HoleTable:
    """Return those of the holes that last so many seconds or more."""
    kept = holes.length_s >= least_s
    return HoleTable(holes.nodes, holes.node[kept], holes.start_s[kept], holes.end_s[kept])


def select(
    trace: Trace, first_nodes: int | None, from_s: float | None, hours: float | None
) -> Trace:
    """Return the part of a trace: its first nodes by name, from a time on, for some hours.

    Without a time it begins with the first event of these nodes.

    Raises:
        TraceError: no hole is left.
    """
    if first_nodes is not None and first_nodes < len(trace.nodes):
        trace = _first_nodes(trace, first_nodes)
    first_s = float(trace.time_s[0]) if len(trace.time_s) else trace.start_s
    begin_s = first_s if from_s is None else from_s
    end_s = trace.end_s if hours is None else min(trace.end_s, begin_s + 3600.0 * hours)
    left = between(holes_in(trace), begin_s, end_s)
    if not trace.start_s <= begin_s < end_s or not len(left.node):
        raise TraceError(
            f"no hole is left: the events go from {trace.start_s:.0f} to {trace.end_s:.0f} "
            "(Unix seconds)"
        )
    if from_s is None and hours is None:
        return replace(trace, start_s=begin_s)
    return trace_of_holes(left, begin_s, end_s)


def _first_nodes(trace: Trace, count: int) -> Trace:
    """By name: ``nodes`` are in this order, whatever wrote the file."""
    chosen = sorted(range(len(trace.nodes)), key=lambda index: trace.nodes[index])[:count]
    number = np.full(len(trace.nodes), -1, np.int32)
    number[chosen] = np.arange(len(chosen))
    kept = number[trace.node] >= 0
    if not kept.any():
        raise TraceError("no event is left for these nodes")
    return Trace(
        nodes=tuple(trace.nodes[index] for index in chosen),
        time_s=trace.time_s[kept],
        node=number[trace.node[kept]],
        idle=trace.idle[kept],
        start_s=trace.start_s,
        end_s=trace.end_s,
    )


@dataclass(frozen=True, slots=True)
class Columns:
    """Equal stretches of time, one after the other; Unix seconds."""

    from_s: float
    width_s: float
    count: int


def idle_seconds(
    holes: HoleTable, columns: Columns, row: NDArray[np.integer] | None = None, rows: int = 1
) -> NDArray[np.float64]:
    """Return the idle node-seconds of each cell, [rows, columns].

    ``row`` has the row of each node; without it all nodes share one.
    """
    of_hole = np.zeros(len(holes.node), np.int64) if row is None else row[holes.node]
    times_s = (holes.start_s, holes.end_s)
    begin, end = (
        np.clip((time_s - columns.from_s) / columns.width_s, 0.0, columns.count)
        for time_s in times_s
    )
    return coverage(of_hole, begin, end, rows, columns.count) * columns.width_s
