"""Stretches of time on a grid of rows and columns, for millions of them: no loop. Needs numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def coverage(
    row: NDArray[np.integer],
    begin: NDArray[np.float64],
    end: NDArray[np.float64],
    rows: int,
    columns: int,
    share: NDArray[np.float64] | float = 1.0,
) -> NDArray[np.float64]:
    """Return how many stretches cover each column of each row, in the mean over the column.

    ``begin`` and ``end`` are in columns from the left edge, 0 to ``columns``. A stretch counts as
    its ``share`` of a row.
    """
    # From its begin on, a stretch fills the rest of that column and all later ones; from its end
    # on it takes the same away. The running sum of both leaves what lies between.
    wide = columns + 2
    steps = np.zeros(rows * wide)
    for edge, sign in ((begin, 1.0), (end, -1.0)):
        column = np.floor(edge).astype(np.int64)
        place, passed = row * wide + column, edge - column
        steps += np.bincount(place, sign * share * (1.0 - passed), minlength=len(steps))
        steps += np.bincount(place + 1, sign * share * passed, minlength=len(steps))
    covered: NDArray[np.float64] = steps.reshape(rows, wide).cumsum(axis=1)[:, :columns]
    return np.maximum(covered, 0.0)
