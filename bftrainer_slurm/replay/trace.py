"""When which node was in a hole: a trace, and the files that hold one.

Files come from outside: what is not a number, a name or a truth value is refused with its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow

COLUMNS = ("time", "node", "idle")
_LATEST_S = 32503680000.0  # the year 3000: beyond it a time is in another unit


class TraceError(ValueError):
    """A file that holds no trace, or a part of one that does not exist; in one line."""


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """A row an event, sorted by time; the first rows are the holes that are open at the start.

    ``time_s`` [events] is in Unix seconds, ``node`` [events] an index into ``nodes``, ``idle``
    [events] true where a hole begins and false where it ends. Holes still open at ``end_s`` are
    cut there.
    """

    nodes: tuple[str, ...]
    time_s: NDArray[np.float64]
    node: NDArray[np.int32]
    idle: NDArray[np.bool_]
    end_s: float

    @property
    def start_s(self) -> float:
        """The time of the first event; the end, where there is none."""
        return float(self.time_s[0]) if len(self.time_s) else self.end_s


@dataclass(frozen=True, slots=True)
class Hole:
    """A stretch of time (Unix seconds) in which a node is idle."""

    node: str
    start_s: float
    end_s: float


def read_events(path: Path) -> Trace:
    """Read a parquet file, or CSV, with the columns time (Unix s), node and idle.

    Raises:
        TraceError: it cannot be read, a column is missing, or a value is not possible.
    """
    try:
        table = _read_table(path)
        time_s, names, idle = (_column(table, name) for name in COLUMNS)
        return _checked(np.asarray(time_s, np.float64), names, idle, _vocabulary(table))
    except ValueError as error:  # Arrow's too: names of columns that are no UTF-8
        raise TraceError(f"{path}: {_one_line(error)}") from error


def select(
    trace: Trace, first_nodes: int | None, from_s: float | None, hours: float | None
) -> Trace:
    """Return the part of a trace: its first nodes by name, from a time on, for some hours.

    Raises:
        TraceError: nothing is left.
    """
    if first_nodes is not None and first_nodes < len(trace.nodes):
        trace = _first_nodes(trace, first_nodes)
    begin_s = trace.start_s if from_s is None else from_s
    end_s = trace.end_s if hours is None else min(trace.end_s, begin_s + 3600.0 * hours)
    if not trace.start_s <= begin_s < end_s:
        raise TraceError(
            f"the events go from {trace.start_s:.0f} to {trace.end_s:.0f}: nothing is left of them"
        )
    if from_s is None and hours is None:
        return trace
    holes = (
        Hole(hole.node, max(begin_s, hole.start_s), min(end_s, hole.end_s))
        for hole in holes_of(trace)
        if hole.start_s < end_s and hole.end_s > begin_s
    )
    return trace_of(holes, end_s)


def holes_of(trace: Trace) -> Iterator[Hole]:
    """Yield the holes in the order in which they end."""
    since: dict[int, float] = {}
    events = zip(trace.time_s.tolist(), trace.node.tolist(), trace.idle.tolist(), strict=True)
    for time_s, node, idle in events:
        if idle:
            since.setdefault(node, time_s)
        elif node in since:
            yield Hole(trace.nodes[node], since.pop(node), time_s)
    for node, start_s in since.items():
        yield Hole(trace.nodes[node], start_s, trace.end_s)


def trace_of(holes: Iterable[Hole], end_s: float | None = None) -> Trace:
    """Return the trace of these holes; it ends with the last of them unless told otherwise.

    Of two holes of a node that touch, the second begins when the first has ended.
    """
    kept = list(holes)
    last_s = max((hole.end_s for hole in kept), default=0.0) if end_s is None else end_s
    nodes = tuple(sorted({hole.node for hole in kept}))
    number = {name: index for index, name in enumerate(nodes)}
    begins = [(hole.start_s, True, number[hole.node]) for hole in kept]
    ends = [(hole.end_s, False, number[hole.node]) for hole in kept if hole.end_s < last_s]
    rows = sorted(begins + ends)
    return Trace(
        nodes=nodes,
        time_s=np.array([row[0] for row in rows], np.float64),
        idle=np.array([row[1] for row in rows], np.bool_),
        node=np.array([row[2] for row in rows], np.int32),
        end_s=last_s,
    )


def _read_table(path: Path) -> pyarrow.Table:
    import pyarrow
    from pyarrow import csv, parquet

    try:
        # Not the file itself: threads of Arrow's that read on after an error would call Python.
        content = pyarrow.BufferReader(path.read_bytes())
        if path.suffix == ".parquet":
            return parquet.read_table(content)
        return csv.read_csv(content)
    except OSError as error:
        raise TraceError(error.strerror or _one_line(error)) from error
    except (pyarrow.ArrowException, ValueError) as error:
        raise TraceError(_one_line(error)) from error


def _column(table: pyarrow.Table, name: str) -> NDArray[np.generic]:
    if name not in table.column_names:
        raise TraceError(f"no column {name}; there must be {', '.join(COLUMNS)}")
    column = table[name]
    if column.null_count:
        raise TraceError(f"column {name} has empty values")
    found: NDArray[np.generic] = column.to_numpy()
    wanted = {"time": "iuf", "node": "OUST", "idle": "bui"}[name]
    if found.dtype.kind not in wanted:
        kind = {"time": "Unix seconds", "node": "names", "idle": "true or false"}[name]
        raise TraceError(f"column {name} must hold {kind}")
    return found


def _vocabulary(table: pyarrow.Table) -> list[str]:
    """The names of a dictionary-encoded column: all nodes, those without an event too."""
    column = table["node"].combine_chunks()
    return [str(name) for name in getattr(column, "dictionary", [])]


def _checked(
    time_s: NDArray[np.float64],
    names: NDArray[np.generic],
    idle: NDArray[np.generic],
    vocabulary: list[str],
) -> Trace:
    if not len(time_s):
        raise TraceError("no event")
    if not np.isfinite(time_s).all() or time_s.min() < 0 or time_s.max() > _LATEST_S:
        raise TraceError("column time must hold Unix seconds")
    if (np.diff(time_s) < 0).any():
        row = int(np.argmax(np.diff(time_s) < 0)) + 2
        raise TraceError(f"event {row} is earlier than the one before: sort the events by time")
    seen, places = np.unique(names.astype(str), return_inverse=True)
    nodes = np.union1d(seen, np.array(vocabulary, dtype=np.str_)) if vocabulary else seen
    return Trace(
        nodes=tuple(str(name) for name in nodes),
        time_s=time_s,
        node=np.searchsorted(nodes, seen)[places].astype(np.int32),
        idle=idle.astype(np.bool_),
        end_s=float(time_s[-1]),
    )


def _first_nodes(trace: Trace, count: int) -> Trace:
    """By name, which is the order in which ``nodes`` are, whatever wrote the file."""
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
        end_s=trace.end_s,
    )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
