"""The planning problems that the history keeps, read again by who looks into a plan."""

from __future__ import annotations

import sqlite3
import zlib
from pathlib import Path

from bftrainer_slurm.controller.state.database import reading
from bftrainer_slurm.controller.state.history import HistoryError

_LARGEST_PROBLEM = 64 * 2**20
_READ_S = 15.0


def past_problem(path: Path, back: int) -> bytes:
    """Return the problem, as JSON, of the controller's plan so many plans ago; 1 is the last.

    Raises:
        HistoryError: in one line.
    """
    query = "SELECT document FROM problems ORDER BY rowid DESC LIMIT 1 OFFSET ?"
    try:
        with reading(path, _READ_S) as database:
            rows = database.execute(query, (back - 1,)).fetchall()
        if not rows:
            raise HistoryError(f"{path}: it has fewer than {back} problems")
        return zlib.decompressobj().decompress(rows[0][0], _LARGEST_PROBLEM)
    except (sqlite3.Error, zlib.error, TypeError) as error:
        raise HistoryError(f"{path}: {error}") from error
