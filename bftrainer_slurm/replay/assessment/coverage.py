"""How much idle time lies in each cell of a grid of nodes and time, without a loop over holes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.replay.logs.holes import HoleTable


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
    # From its start on, a hole fills the rest of that column and all later ones; from its end on
    # it takes the same away. The running sum of both leaves what lies between.
    filled = _from_then_on(holes.start_s, of_hole, columns, rows)
    filled -= _from_then_on(holes.end_s, of_hole, columns, rows)
    return np.maximum(np.cumsum(filled, axis=1)[:, : columns.count], 0.0) * columns.width_s


def _from_then_on(
    time_s: NDArray[np.float64], row: NDArray[np.integer], columns: Columns, rows: int
) -> NDArray[np.float64]:
    place = np.clip((time_s - columns.from_s) / columns.width_s, 0.0, columns.count)
    column = np.floor(place).astype(np.int64)
    passed = place - column
    cell = row * (columns.count + 2) + column
    size = rows * (columns.count + 2)
    steps = np.zeros(size)
    steps += np.bincount(cell, weights=1.0 - passed, minlength=size)
    steps += np.bincount(cell + 1, weights=passed, minlength=size)
    return steps.reshape(rows, columns.count + 2)
