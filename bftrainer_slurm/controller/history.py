"""What Slurm does not know: holes, stays of elements on nodes, plans, progress, what was learnt.

Only the controller writes. A reader opens the file read-only.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bftrainer_slurm.controller.database import Database, is_damage, set_aside
from bftrainer_slurm.controller.lessons import Lessons
from bftrainer_slurm.controller.schema import upgrade
from bftrainer_slurm.model import ElementId

_KEEP_S = 90 * 86400.0
_DATED = ("plans", "progress", "given_up", "looks", "rescales", "reforms")
_BY_ARRAY = ("stays", "progress", "given_up", "looks", "reforms")


logger = logging.getLogger(__name__)


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
    """The history file. ``how`` a stay ended: shrank, reclaimed, or ended (by itself).

    Nothing but opening it raises: what cannot be written waits, and ``trouble`` says why. A damaged
    file is set aside for a new one: trainers are planned for without their past, too.
    """

    def __init__(self, path: Path | str) -> None:
        try:
            self._database = _opened(path)
        except sqlite3.Error as error:
            raise HistoryError(f"history {path}: {error}; move it away to begin anew") from error
        self.lessons = Lessons(self._database)
        self._tallies: dict[int, Tally] = {}

    @property
    def trouble(self) -> str | None:
        """Why it cannot be written now, None: it can."""
        return self._database.trouble

    def begin_stay(self, element: ElementId, node: str, time_s: float) -> None:
        """Note that an element runs on a node."""
        self._tallies.pop(element.array, None)
        self._database.write(
            (
                "INSERT INTO stays (array, task, node, start_s) VALUES (?, ?, ?, ?)",
                (element.array, element.task, node, time_s),
            )
        )

    def end_stay(self, element: ElementId, time_s: float, how: str) -> None:
        """Note that an element runs no more."""
        self._tallies.pop(element.array, None)
        self._database.write(
            (
                "UPDATE stays SET end_s = max(start_s, ?), how = ? "
                "WHERE array = ? AND task = ? AND end_s IS NULL",
                (time_s, how, element.array, element.task),
            )
        )

    def open_stays(self) -> dict[ElementId, str]:
        """Return the node of each element that runs as far as is known."""
        rows = self._database.read("SELECT array, task, node FROM stays WHERE end_s IS NULL")
        return {ElementId(array, task): node for array, task, node in rows}

    def tally(self, array: int) -> Tally:
        """Count one trainer's stays."""
        known = self._tallies.get(array)
        if known is not None:
            return known
        rows = self._database.read(
            "SELECT count(*), total(how = 'shrank'), total(how = 'reclaimed'), "
            "total(end_s - start_s) FROM stays WHERE array = ?",
            (array,),
        )
        if not rows:
            return Tally()
        ((grew, shrank, reclaimed, node_s),) = rows
        self._tallies[array] = Tally(grew, int(shrank), int(reclaimed), node_s)
        return self._tallies[array]

    def open_holes(self) -> dict[str, float]:
        """Return the nodes that are in a hole as far as is known, and since when."""
        return dict(self._database.read("SELECT node, start_s FROM holes WHERE end_s IS NULL"))

    def change_holes(self, ended: Iterable[str], began: Iterable[str], time_s: float) -> None:
        """Note that holes have ended and others begun, by node."""
        end = "UPDATE holes SET end_s = max(start_s, ?) WHERE node = ? AND end_s IS NULL"
        begin = "INSERT INTO holes (node, start_s) VALUES (?, ?)"
        self._database.write(
            *((end, (time_s, node)) for node in ended), *((begin, (node, time_s)) for node in began)
        )

    def add_plan(
        self, time_s: float, pool: int, used: int, objective: float, status: str, solve_s: float
    ) -> None:
        """Note a plan that was made."""
        plan = (time_s, pool, used, objective, status, solve_s)
        self._database.write(("INSERT INTO plans VALUES (?, ?, ?, ?, ?, ?)", plan))

    def add_progress(self, array: int, time_s: float, samples: float, measures: str) -> None:
        """Note how far a trainer says it has come."""
        progress = (array, time_s, samples, measures)
        self._database.write(("INSERT INTO progress VALUES (?, ?, ?, ?)", progress))

    def samples(self, array: int) -> float | None:
        """Return how many samples a trainer had by its last progress, None: it told of none."""
        rows = self._database.read(
            "SELECT samples FROM progress WHERE array = ? ORDER BY time_s DESC LIMIT 1", (array,)
        )
        return float(rows[0][0]) if rows else None

    def has_trained(self, array: int) -> bool:
        """Return whether anything was learnt of a trainer's throughput: it does train."""
        return bool(self._database.read("SELECT 1 FROM looks WHERE array = ? LIMIT 1", (array,)))

    def give_up(self, array: int, time_s: float, why: str) -> None:
        """Note that a trainer is not tried again."""
        self._database.write(
            ("INSERT OR REPLACE INTO given_up VALUES (?, ?, ?)", (array, time_s, why))
        )

    def given_up(self) -> dict[int, str]:
        """Return why trainers are not tried again, by array id."""
        return dict(self._database.read("SELECT array, why FROM given_up"))

    def looked(self, time_s: float) -> None:
        """Note that nothing has happened to trainers until then that is not written here."""
        self._database.write(("INSERT OR REPLACE INTO looked VALUES (1, ?)", (time_s,)))

    def looked_s(self) -> float | None:
        """Return until when all is written, None: nothing is known of that."""
        rows = self._database.read("SELECT time_s FROM looked")
        return float(rows[0][0]) if rows else None

    def forget(self, array: int) -> None:
        """Drop all that is known of the trainer of this id: Slurm has given it to another one."""
        self._database.write(
            *((f"DELETE FROM {table} WHERE array = ?", (array,)) for table in _BY_ARRAY)
        )
        self._tallies.pop(array, None)

    def forget_old(self, now_s: float) -> None:
        """Drop what is older than 90 days."""
        old_s = now_s - _KEEP_S
        self._database.write(
            ("DELETE FROM stays WHERE end_s < ?", (old_s,)),
            ("DELETE FROM holes WHERE end_s < ?", (old_s,)),
            *((f"DELETE FROM {table} WHERE time_s < ?", (old_s,)) for table in _DATED),
        )
        self._tallies.clear()

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def _opened(path: Path | str) -> Database:
    try:
        return _up_to_date(path)
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        aside = set_aside(Path(path))
        logger.error("history %s: %s; set aside as %s, a new one begins", path, error, aside)
    return _up_to_date(path)


def _up_to_date(path: Path | str) -> Database:
    database = Database(path)
    try:
        database.check()
        upgrade(database)
    except sqlite3.Error:
        database.close()
        raise
    return database
