"""What Slurm does not know, in SQLite: holes, stays of elements on nodes, plans, progress.

Only the controller writes. A reader opens the file read-only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bftrainer_slurm.model import ElementId

_VERSION = 2
_KEEP_S = 90 * 86400.0
_SCHEMA = """
CREATE TABLE stays (
    array INTEGER NOT NULL, task INTEGER NOT NULL, node TEXT NOT NULL,
    start_s REAL NOT NULL, end_s REAL, how TEXT
);
CREATE INDEX stays_by_array ON stays (array);
CREATE UNIQUE INDEX one_stay_at_a_time ON stays (array, task) WHERE end_s IS NULL;
CREATE TABLE plans (
    time_s REAL NOT NULL, pool INTEGER NOT NULL, used INTEGER NOT NULL,
    objective REAL NOT NULL, status TEXT NOT NULL, solve_s REAL NOT NULL
);
CREATE TABLE progress (
    array INTEGER NOT NULL, time_s REAL NOT NULL, samples REAL NOT NULL, measures TEXT NOT NULL
);
CREATE INDEX progress_by_array ON progress (array, time_s);
CREATE TABLE given_up (array INTEGER PRIMARY KEY, time_s REAL NOT NULL, why TEXT NOT NULL);
"""
_HOLES = """
CREATE TABLE holes (node TEXT NOT NULL, start_s REAL NOT NULL, end_s REAL);
CREATE UNIQUE INDEX one_hole_at_a_time ON holes (node) WHERE end_s IS NULL;
"""


class HistoryError(Exception):
    """The history file cannot be used; the message says which and what to do."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of one trainer so far. ``node_s`` counts finished stays only."""

    grew: int = 0
    shrank: int = 0
    reclaimed: int = 0
    node_s: float = 0.0


class History:
    """The history file. ``how`` a stay ended: shrank, reclaimed, or ended (by itself)."""

    def __init__(self, path: Path | str) -> None:
        try:
            self._database = sqlite3.connect(path, isolation_level=None)
            self._prepare()
        except sqlite3.Error as error:
            raise HistoryError(f"history {path}: {error}; move it away to begin anew") from error

    def _prepare(self) -> None:
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=NORMAL")
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        if version == 0:
            self._database.executescript(f"{_SCHEMA} {_HOLES} PRAGMA user_version={_VERSION};")
        elif version == 1:  # the holes came with version 2
            self._database.executescript(f"{_HOLES} PRAGMA user_version={_VERSION};")
        elif version != _VERSION:
            raise sqlite3.DatabaseError(f"written by another version ({version})")

    def begin_stay(self, element: ElementId, node: str, time_s: float) -> None:
        """Note that an element runs on a node."""
        self._database.execute(
            "INSERT INTO stays (array, task, node, start_s) VALUES (?, ?, ?, ?)",
            (element.array, element.task, node, time_s),
        )

    def end_stay(self, element: ElementId, time_s: float, how: str) -> None:
        """Note that an element runs no more."""
        self._database.execute(
            "UPDATE stays SET end_s = max(start_s, ?), how = ? "
            "WHERE array = ? AND task = ? AND end_s IS NULL",
            (time_s, how, element.array, element.task),
        )

    def open_stays(self) -> dict[ElementId, str]:
        """Return the node of each element that runs as far as is known."""
        rows = self._database.execute("SELECT array, task, node FROM stays WHERE end_s IS NULL")
        return {ElementId(array, task): node for array, task, node in rows}

    def tally(self, array: int) -> Tally:
        """Count one trainer's stays."""
        row = self._database.execute(
            "SELECT count(*), total(how = 'shrank'), total(how = 'reclaimed'), "
            "total(end_s - start_s) FROM stays WHERE array = ?",
            (array,),
        ).fetchone()
        return Tally(row[0], int(row[1]), int(row[2]), row[3])

    def open_holes(self) -> dict[str, float]:
        """Return the nodes that are in a hole as far as is known, and since when."""
        return dict(self._database.execute("SELECT node, start_s FROM holes WHERE end_s IS NULL"))

    def change_holes(self, ended: Iterable[str], began: Iterable[str], time_s: float) -> None:
        """Note that holes have ended and others begun, by node."""
        with self._transaction():
            self._database.executemany(
                "UPDATE holes SET end_s = max(start_s, ?) WHERE node = ? AND end_s IS NULL",
                [(time_s, node) for node in ended],
            )
            self._database.executemany(
                "INSERT INTO holes (node, start_s) VALUES (?, ?)",
                [(node, time_s) for node in began],
            )

    def add_plan(
        self, time_s: float, pool: int, used: int, objective: float, status: str, solve_s: float
    ) -> None:
        """Note a plan that was made."""
        self._database.execute(
            "INSERT INTO plans VALUES (?, ?, ?, ?, ?, ?)",
            (time_s, pool, used, objective, status, solve_s),
        )

    def add_progress(self, array: int, time_s: float, samples: float, measures: str) -> None:
        """Note how far a trainer says it has come."""
        self._database.execute(
            "INSERT INTO progress VALUES (?, ?, ?, ?)", (array, time_s, samples, measures)
        )

    def give_up(self, array: int, time_s: float, why: str) -> None:
        """Note that a trainer is not tried again."""
        self._database.execute(
            "INSERT OR REPLACE INTO given_up VALUES (?, ?, ?)", (array, time_s, why)
        )

    def given_up(self) -> dict[int, str]:
        """Return why trainers are not tried again, by array id."""
        return dict(self._database.execute("SELECT array, why FROM given_up"))

    def forget_old(self, now_s: float) -> None:
        """Drop what is older than 90 days."""
        with self._transaction():
            old_s = now_s - _KEEP_S
            self._database.execute("DELETE FROM stays WHERE end_s < ?", (old_s,))
            self._database.execute("DELETE FROM holes WHERE end_s < ?", (old_s,))
            self._database.execute("DELETE FROM plans WHERE time_s < ?", (old_s,))
            self._database.execute("DELETE FROM progress WHERE time_s < ?", (old_s,))
            self._database.execute("DELETE FROM given_up WHERE time_s < ?", (old_s,))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._database.close()
