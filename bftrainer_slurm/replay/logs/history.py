"""Reads the holes that our own controller saw, from its history file (SQLite).

The file is opened read-only; the controller may go on writing it.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import numpy as np

from bftrainer_slurm.replay.logs.holes import HoleTable, longer
from bftrainer_slurm.replay.logs.jobs import LogError

MAGIC = b"SQLite format 3\x00"
_MOST_HOLES = 50_000_000
_QUERY = """
SELECT node, CAST(start_s AS REAL), CAST(end_s AS REAL) FROM holes
WHERE typeof(node) = 'text' AND CAST(start_s AS REAL) BETWEEN 1 AND 4102444800
AND (end_s IS NULL OR CAST(end_s AS REAL) BETWEEN CAST(start_s AS REAL) AND 4102444800)
ORDER BY node, start_s LIMIT ?
"""


def read_history(path: Path, min_hole_s: float) -> tuple[HoleTable, float, float]:
    """Return the holes, and between which times (Unix seconds) they were watched.

    A hole that is still open lasts until the last moment that the file knows. Raises LogError.
    """
    try:
        with closing(sqlite3.connect(_address(path), uri=True)) as database:
            rows = database.execute(_QUERY, (_MOST_HOLES,)).fetchall()
    except sqlite3.Error as error:
        raise LogError(f"{error}; give the controller's history.sqlite") from error
    if not rows:
        raise LogError("the controller has seen no hole yet")
    listed, starts, ends = zip(*rows, strict=True)
    names = tuple(dict.fromkeys(listed))
    numbers = {name: number for number, name in enumerate(names)}
    node = np.array([numbers[name] for name in listed], np.int32)
    start_s, end_s = np.array(starts, float), np.array(ends, float)  # NaN where it is still open
    last_s = max(float(start_s.max()), float(np.nanmax(end_s, initial=0.0)))
    end_s = np.where(np.isnan(end_s), last_s, end_s)
    holes = longer(HoleTable(names, node, start_s, end_s), min_hole_s)
    return holes, float(start_s.min()), last_s


def _address(path: Path) -> str:
    """SQLite's address of a file that must not change.

    If no controller has it open, a reader would otherwise leave a write-ahead log behind that the
    controller may not be allowed to write.
    """
    in_use = path.with_name(f"{path.name}-wal").exists()
    return f"file:{quote(str(path))}?mode=ro{'' if in_use else '&immutable=1'}"
