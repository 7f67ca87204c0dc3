"""Traces, which say when each node was in a hole, and their files.

Files come from outside: values of a wrong type are refused, and the message names the column.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.replay.logs.lines import unzipped

if TYPE_CHECKING:
    import pyarrow

HOUR_S = 3600.0
COLUMNS = ("time", "node", "idle")
PARQUET_MAGIC = b"PAR1"
_PIECE_BYTES = 2**20
_MOST_BYTES = 4 * 2**30  # unzipped
_LATEST_S = 32503680000.0  # the year 3000: a later time is in another unit


class TraceError(ValueError):
    """A file has no trace, or the trace lacks the requested part; in one line."""


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """One row for each event, sorted by time; the first rows are the holes open at the start.

    ``time_s`` [events] is in Unix seconds, ``node`` [events] an index into ``nodes``, ``idle``
    [events] true when a hole begins and false when it ends. Holes still open at ``end_s`` are
    cut there.
    """

    nodes: tuple[str, ...]
    time_s: NDArray[np.float64]
    node: NDArray[np.int32]
    idle: NDArray[np.bool_]
    start_s: float
    end_s: float


def read_events(path: Path) -> Trace:
    """Read a parquet file, or CSV, with the columns time (Unix s), node and idle; gzipped or not.

    The events may be in any order.

    Raises:
        TraceError: the file cannot be read, a column is missing, or a value is impossible.
    """
    try:
        table = _read_table(path)
        time_s, names, idle = (_column(table, name) for name in COLUMNS)
        return _make_trace(np.asarray(time_s, np.float64), names, idle, _dictionary_names(table))
    except ValueError as error:  # also Arrow's: names of columns that are not UTF-8
        raise TraceError(f"{path}: {_one_line(error)}") from error


def _read_table(path: Path) -> pyarrow.Table:
    import pyarrow
    from pyarrow import csv, parquet

    try:
        content = _content(path)
        if content.slice(0, len(PARQUET_MAGIC)).to_pybytes() == PARQUET_MAGIC:
            return parquet.read_table(pyarrow.BufferReader(content))
        return csv.read_csv(pyarrow.BufferReader(content))
    except OSError as error:
        raise TraceError(error.strerror or _one_line(error)) from error
    except (pyarrow.ArrowException, ValueError, EOFError, zlib.error) as error:
        raise TraceError(_one_line(error)) from error


def _content(path: Path) -> pyarrow.Buffer:
    """Return a file in Arrow's own memory.

    Arrow's threads may hold it a moment longer than we do. If it were a Python object and the
    interpreter had ended, the process would abort.
    """
    import pyarrow

    if path.is_char_device():
        raise TraceError("not a file")
    sink = pyarrow.BufferOutputStream()
    with path.open("rb") as raw:
        content = unzipped(raw)
        while piece := content.read(_PIECE_BYTES):
            sink.write(piece)
            if sink.tell() > _MOST_BYTES:
                raise TraceError(f"larger than {_MOST_BYTES // 2**30} GiB")
    return sink.getvalue()


def _column(table: pyarrow.Table, name: str) -> NDArray[np.generic]:
    if (count := table.column_names.count(name)) != 1:
        columns = f"no column {name}" if not count else f"{count} columns {name}"
        raise TraceError(f"{columns}; there must be {', '.join(COLUMNS)}")
    column = table[name]
    if not len(column):
        raise TraceError("it has no events")
    if column.null_count:
        raise TraceError(f"column {name} has empty values")
    found: NDArray[np.generic] = column.to_numpy()
    wanted = {"time": "iuf", "node": "OUST", "idle": "bui"}[name]
    if found.dtype.kind not in wanted:
        kind = {"time": "Unix seconds", "node": "names", "idle": "true or false"}[name]
        raise TraceError(f"column {name} must hold {kind}")
    return found


def _dictionary_names(table: pyarrow.Table) -> list[str]:
    """Return the dictionary of the column of nodes: it also has nodes without events."""
    column = table["node"].combine_chunks()
    return [str(name) for name in getattr(column, "dictionary", [])]


def _make_trace(
    time_s: NDArray[np.float64],
    names: NDArray[np.generic],
    idle: NDArray[np.generic],
    vocabulary: list[str],
) -> Trace:
    if not len(time_s):
        raise TraceError("no event")
    if not np.isfinite(time_s).all() or time_s.min() < 0 or time_s.max() > _LATEST_S:
        raise TraceError("column time must hold Unix seconds")
    order = np.argsort(time_s, kind="stable")  # events of one time keep their order
    time_s, names, idle = time_s[order], names[order], idle[order]
    seen, places = np.unique(names.astype(str), return_inverse=True)
    nodes = np.union1d(seen, np.array(vocabulary, dtype=np.str_)) if vocabulary else seen
    return Trace(
        nodes=tuple(str(name) for name in nodes),
        time_s=time_s,
        node=np.searchsorted(nodes, seen)[places].astype(np.int32),
        idle=idle.astype(np.bool_),
        start_s=float(time_s[0]),
        end_s=float(time_s[-1]),
    )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
