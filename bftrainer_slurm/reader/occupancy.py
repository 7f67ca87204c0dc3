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

from bftrainer_slurm.grid import coverage
from bftrainer_slurm.reader.past import NODE_SHARE, MaySee, owner_of
from bftrainer_slurm.words import natural

_MOST_INTERVALS = 200_000  # of each kind; if there are more, the earliest are left out
_MOST_TRAINERS = 254  # trainers with a code of their own in an answer; a code is a byte
_OTHERS = 255

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
    cut_s: float  # earlier intervals were left out

    @property
    def node_columns(self) -> _Floats:
        """How long each is, in columns, as its share of a node."""
        length: _Floats = (self.end - self.begin) * self.share
        return length


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

    def cover(table: str, array: str = "0", share: str = "1") -> tuple[_Intervals, _Floats]:
        found = _intervals(history, table, array, share, window, now_s, row_of)
        shape = len(sizes), window.columns
        return found, coverage(found.row, found.begin, found.end, *shape, found.share)

    allocations, trained = cover("allocations", "array", NODE_SHARE)
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
    return {
        **window.as_document,
        "nodes": len(names),
        "rows": rows,
        "seen": _base64(_watched_shares(history, window, cut_s)),
        "cells": {
            **_by_kind(counts, lambda count: _base64(count / most)),
            "who": _trainer_codes(allocations, codes, (len(sizes), window.columns)),
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
    array: str,
    share: str,
    window: Window,
    now_s: float,
    row_of: dict[str, int],
) -> _Intervals:
    """Return the last intervals of a table in a window, as numbers."""
    rows = history.execute(
        f"SELECT node, start_s, coalesce(end_s, ?), {array}, {share} FROM {table} "
        "WHERE (end_s > ? OR end_s IS NULL) AND start_s < ? "
        "ORDER BY coalesce(end_s, 9e99) DESC LIMIT ?",
        (now_s, window.from_s, window.to_s, _MOST_INTERVALS),
    )
    fields = ("row", "i8"), ("begin", "f8"), ("end", "f8"), ("array", "i8"), ("share", "f8")
    kind = np.dtype([*fields])
    found = np.fromiter(((row_of.get(node, -1), *more) for node, *more in rows), dtype=kind)
    cut_s = float(found["end"].min()) if len(found) == _MOST_INTERVALS else 0.0
    found = found[(found["row"] >= 0) & (found["end"] > found["begin"])]
    begin, end = window.column(found["begin"]), window.column(found["end"])
    return _Intervals(found["row"], begin, end, found["array"], found["share"], cut_s)


def _legend(
    history: sqlite3.Connection, allocations: _Intervals, may_see: MaySee, column_s: float
) -> tuple[dict[int, int], list[dict[str, Any]]]:
    """Return the code of each trainer, those with most nodes first, and the legend of the codes."""
    arrays, places = np.unique(allocations.array, return_inverse=True)
    weights = np.bincount(places, allocations.node_columns, minlength=len(arrays))
    codes: dict[int, int] = {}
    legend = []
    for place in np.argsort(-weights, kind="stable").tolist():
        array, hours = int(arrays[place]), weights[place] * column_s / 3600
        if len(codes) == _MOST_TRAINERS:
            break
        user, name = owner_of(history, array) or ("", "")
        if may_see(user):
            codes[array] = len(codes) + 1
            known = {"array": array, "user": user, "name": name}
            legend.append(known | {"node_h": round(hours, 3)})
    return codes, legend


def _trainer_codes(allocations: _Intervals, codes: dict[int, int], shape: tuple[int, int]) -> str:
    """Return one trainer's code for each cell, 0 for no trainer. Longer intervals cover others."""
    cells = np.zeros(shape, dtype=np.uint8)
    order = np.argsort(allocations.end - allocations.begin, kind="stable")
    begin = np.floor(allocations.begin).astype(int)[order].tolist()
    end = np.ceil(allocations.end).astype(int)[order].tolist()
    known = (codes.get(array, _OTHERS) for array in allocations.array[order].tolist())
    for row, start, stop, code in zip(
        allocations.row[order].tolist(), begin, end, known, strict=True
    ):
        cells[row, start:stop] = code
    return b64encode(cells.tobytes()).decode()


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
