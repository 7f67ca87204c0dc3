"""What nodes were used for over time: the history as a map of nodes and times, within a window.

All of it is array arithmetic: a week of 5,000 nodes has some 100,000 intervals of time.
"""

from __future__ import annotations

import sqlite3
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.controller.state.schema import GPUS, NODE_SHARE
from bftrainer_slurm.grid import coverage
from bftrainer_slurm.reader.past import MaySee, owner_of
from bftrainer_slurm.words import natural

_MOST_INTERVALS = 200_000  # of each kind; if there are more, the earliest are left out
_MOST_TRAINERS = 254  # trainers with a code of their own in an answer; a code is a byte
_OTHERS = 255
_LITTLE = 1e-9  # of a node; sums are not exact

_Floats: TypeAlias = NDArray[np.float64]
_Whole: TypeAlias = NDArray[np.int64]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Window:
    """A part of the map: a time in ``columns``, and some of the nodes in at most ``rows``."""

    from_s: float
    to_s: float
    columns: int
    rows: int
    first: int = 0
    last: int | None = None  # node, counted from 0; None means the last one

    @property
    def as_document(self) -> dict[str, Any]:
        """The window as a part of the answer."""
        ends = {"from_s": self.from_s, "to_s": self.to_s}
        return ends | {"columns": self.columns, "first": self.first}

    def column(self, time_s: _Floats) -> _Floats:
        """Return where times lie, in columns from the left edge."""
        share = (time_s - self.from_s) / (self.to_s - self.from_s)
        return np.clip(share, 0.0, 1.0) * self.columns


@dataclass(frozen=True, slots=True)
class _Intervals:
    """Intervals of time on rows; ``begin`` and ``end`` are in columns."""

    row: _Whole
    begin: _Floats
    end: _Floats
    array: _Whole
    share: _Floats  # of its node
    gpus: _Floats  # on a node that jobs share
    cut_s: float  # earlier intervals were left out


def nodes_over_time(
    history: sqlite3.Connection, window: Window, now_s: float, may_see: MaySee
) -> dict[str, Any]:
    """Return what nodes were used for: shares for each row and column, and the sums over all rows.

    Time belongs to ordinary jobs unless trainers had the node, it was idle or out of service. A
    part of a node counts as its share; beside it, idle is what is left of a node without a job.
    """
    names = _node_names(history)
    shown = names[window.first : window.last]
    each = max(1, -(-len(shown) // window.rows))
    sizes = [len(shown[start : start + each]) for start in range(0, len(shown), each)]
    row_of = {name: place // each for place, name in enumerate(shown)}

    def cover(table: str, columns: str = "0, 1, 0") -> tuple[_Intervals, _Floats]:
        found = _intervals(history, table, columns, window, now_s, row_of)
        shape = len(sizes), window.columns
        return found, coverage(found.row, found.begin, found.end, *shape, found.share)

    allocations, trained = cover("allocations", f"array, {NODE_SHARE}, {GPUS}")
    holes, open_ = cover("holes")
    outages, out = cover("outages")
    most = np.array(sizes, dtype=float).reshape(-1, 1)
    trained = np.minimum(trained, most)
    idle = np.clip(open_ - trained, 0.0, most - trained)
    out = np.clip(out, 0.0, most - trained - idle)
    counts = {"trainers": trained, "idle": idle, "out": out}
    cut_s = max(one.cut_s for one in (allocations, holes, outages))
    codes, legend = _legend(
        history, allocations, may_see, (window.to_s - window.from_s) / window.columns
    )
    rows = [[shown[n * each], shown[n * each + size - 1], size] for n, size in enumerate(sizes)]
    who, theirs = _owners(allocations, codes, (len(sizes), window.columns))
    counts_of = {**counts, "theirs": np.minimum(theirs, trained)}
    return {
        **window.as_document,
        "nodes": len(names),
        "rows": rows,
        "seen": _base64(_watched_shares(history, window, cut_s)),
        "cells": {
            **_by_kind(counts_of, lambda count: _base64(count / most)),
            "who": b64encode(who.tobytes()).decode(),
        },
        "trainers": legend,
        "sums": _by_kind({**counts, "ordinary": most - sum(counts.values())}, _sums),
    }


def _by_kind(counts: dict[str, _Floats], say: Callable[[_Floats], _T]) -> dict[str, _T]:
    return {kind: say(count) for kind, count in counts.items()}


def _node_names(history: sqlite3.Connection) -> list[str]:
    """Return all nodes in natural order: n2 comes before n10."""
    return sorted((name for (name,) in history.execute("SELECT node FROM nodes")), key=natural)


def _intervals(
    history: sqlite3.Connection,
    table: str,
    columns: str,
    window: Window,
    now_s: float,
    row_of: dict[str, int],
) -> _Intervals:
    """Return the last intervals of a table in a window; ``columns``: array, share and GPUs."""
    rows = history.execute(
        f"SELECT node, start_s, coalesce(end_s, ?), {columns} FROM {table} "
        "WHERE (end_s > ? OR end_s IS NULL) AND start_s < ? "
        "ORDER BY coalesce(end_s, 9e99) DESC LIMIT ?",
        (now_s, window.from_s, window.to_s, _MOST_INTERVALS),
    )
    fields = ("row", "i8"), ("begin", "f8"), ("end", "f8")
    kind = np.dtype([*fields, ("array", "i8"), ("share", "f8"), ("gpus", "f8")])
    found = np.fromiter(((row_of.get(node, -1), *more) for node, *more in rows), dtype=kind)
    cut_s = float(found["end"].min()) if len(found) == _MOST_INTERVALS else 0.0
    found = found[(found["row"] >= 0) & (found["end"] > found["begin"])]
    begin, end = window.column(found["begin"]), window.column(found["end"])
    share, gpus = found["share"], found["gpus"]
    return _Intervals(found["row"], begin, end, found["array"], share, gpus, cut_s)


def _legend(
    history: sqlite3.Connection, allocations: _Intervals, may_see: MaySee, column_s: float
) -> tuple[dict[int, int], list[dict[str, Any]]]:
    """Return the code of each trainer, those with most nodes first, and the legend of the codes."""
    arrays, places = np.unique(allocations.array, return_inverse=True)
    length_h = (allocations.end - allocations.begin) * column_s / 3600
    hours, gpu_hours = (
        np.bincount(places, length_h * of, minlength=len(arrays))
        for of in (allocations.share, allocations.gpus)
    )
    codes: dict[int, int] = {}
    legend = []
    for place in np.argsort(-hours, kind="stable").tolist():
        array = int(arrays[place])
        if len(codes) == _MOST_TRAINERS:
            break
        user, name = owner_of(history, array) or ("", "")
        if may_see(user):
            codes[array] = len(codes) + 1
            known = {"array": array, "user": user, "name": name}
            used = {"node_h": round(hours[place], 3), "gpu_h": round(gpu_hours[place], 3)}
            legend.append(known | used)
    return codes, legend


def _owners(
    allocations: _Intervals, codes: dict[int, int], shape: tuple[int, int]
) -> tuple[NDArray[np.uint8], _Floats]:
    """Return of each cell the code of the trainer with most node time there, 0 for none.

    And how many nodes that trainer has there. All without a code count as one.
    """
    who, most = np.zeros(shape, dtype=np.uint8), np.zeros(shape)
    arrays, places = np.unique(allocations.array, return_inverse=True)
    of_array = np.array([codes.get(array, _OTHERS) for array in arrays.tolist()], dtype=int)
    code_of = of_array[places]
    for code in np.unique(code_of).tolist():
        mine = code_of == code
        rows, at = np.unique(allocations.row[mine], return_inverse=True)
        times = allocations.begin[mine], allocations.end[mine]
        nodes = coverage(at, *times, len(rows), shape[1], allocations.share[mine])
        more = nodes > most[rows] + _LITTLE
        who[rows] = np.where(more, code, who[rows])
        most[rows] = np.where(more, nodes, most[rows])
    return who, most


def _watched_shares(history: sqlite3.Connection, window: Window, cut_s: float) -> _Floats:
    """Return the share of each column's time in which a controller observed the cluster."""
    query = "SELECT start_s, end_s FROM watches WHERE end_s > ? AND start_s < ?"
    rows = history.execute(query, (window.from_s, window.to_s)).fetchall()
    times = np.array(rows, dtype=float).reshape(-1, 2)
    begin, end = (window.column(np.maximum(times[:, n], cut_s)) for n in (0, 1))
    none = np.zeros(len(rows), dtype=np.int64)
    return np.minimum(coverage(none, begin, end, 1, window.columns), 1.0)


def _base64(shares: _Floats) -> str:
    return b64encode(np.rint(255 * shares).astype(np.uint8).tobytes()).decode()


def _sums(counts: _Floats) -> list[float]:
    sums: list[float] = counts.sum(axis=0).round(2).tolist()
    return sums
