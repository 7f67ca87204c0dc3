"""The history file: allocations of elements, holes, problems, and trainers that were met.

Slurm knows none of this. ``measurements`` has what trainers report.
"""

from __future__ import annotations

import json
import logging
import math
import sqlite3
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any

from bftrainer_slurm.controller.state.schema import (
    Statement,
    delete_old,
    keep_newest,
    opened,
    tables_with,
)
from bftrainer_slurm.controller.state.statistics import (
    ADD_ENDED,
    TOTALS_OF_ONE,
    Counts,
    Delay,
    Totals,
    totals_of_one,
)
from bftrainer_slurm.controller.state.trainer_state import differ
from bftrainer_slurm.model import ElementId, Trainer
from bftrainer_slurm.spec import TrainerRecord, format_comment, parse_comment

logger = logging.getLogger(__name__)

_RETRY_S = 5.0
_MOST_KEPT = 50_000  # statements kept while the disk fails; beyond that the oldest are lost
_PROBLEMS_KEPT = 100
_PART_S = 300.0  # starts of ordinary jobs are counted in periods of this length
_MEET = """
INSERT INTO trainers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)
ON CONFLICT DO UPDATE SET (id, time_s, user, name, submit_s, min_nodes, max_nodes, comment) = (
    excluded.id, excluded.time_s, excluded.user, excluded.name, excluded.submit_s,
    excluded.min_nodes, excluded.max_nodes, excluded.comment
)
"""


def put(table: str, *values: Any) -> Statement:
    """Return a statement that writes a row and replaces one with the same key."""
    return f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(values))})", values


class HistoryError(Exception):
    """The history file cannot be used; the message names the file and the remedy."""


class History:
    """The history file. Only opening it raises ``HistoryError``.

    What cannot be written waits and is written later, in order; ``trouble`` says why, None if the
    last write has succeeded. The clock may have been wrong, for example at boot, so rows may lie in
    the future of ``clock`` (Unix seconds); they stay, and delay nothing. ``counts`` are the events
    that this process has recorded. ``remote``: a file server has the file, see ``schema.opened``.
    """

    def __init__(
        self,
        path: Path | str,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        remote: bool = False,
    ) -> None:
        try:
            self._connection = opened(path, remote)
        except sqlite3.Error as error:
            raise HistoryError(f"history {path}: {error}; move it away to get a new one") from error
        self.trouble: str | None = None
        self.counts = Counts()
        self.clock = clock
        self._monotonic = monotonic
        self._waiting: deque[Statement] = deque(maxlen=_MOST_KEPT)
        self._retry_s = -math.inf
        self._together = False
        self._in_file = path != ":memory:"
        self._ended: dict[int, str] = {}  # why trainers are over; the file may not have it yet

    def write(self, *statements: Statement) -> None:
        """Execute statements in one transaction, now or as soon as the disk allows."""
        self._waiting.extend(statements)
        if not self._together:
            self.flush()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Keep the statements of a turn for one transaction: each waits for the disk."""
        before, self._together = self._together, True
        try:
            yield
        finally:
            self._together = before
            self.write()

    def flush(self) -> None:
        """Execute what waits, if the disk allows: the next controller has to know it."""
        if not self._waiting or self._monotonic() < self._retry_s:
            return
        try:
            self._write_waiting()
        except sqlite3.Error as error:
            self._failed(error)
        else:
            if self.trouble is not None:
                logger.info("the history can be written again")
            self.trouble = None

    def read(self, query: str, *values: Any, **named: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query; no rows if the file cannot be read now."""
        if self._together:
            self.flush()
        try:
            return self._connection.execute(query, named or values).fetchall()
        except sqlite3.Error as error:
            self._failed(error)
            return []

    def close(self) -> None:
        """Write waiting statements if possible, and close the file."""
        self._retry_s = -math.inf
        self.flush()
        self._connection.close()

    def _write_waiting(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for query, parameters in self._waiting:
                try:
                    self._connection.execute(query, parameters)
                except (sqlite3.IntegrityError, OverflowError, UnicodeError) as error:
                    logger.error("dropped a write to the history: %s", error)  # a retry fails too
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            if self._connection.in_transaction:  # a full disk ends the transaction by itself
                self._connection.execute("ROLLBACK")
            raise
        self._waiting.clear()

    def _failed(self, error: sqlite3.Error) -> None:
        if self.trouble is None:
            logger.error("cannot use the history file, writes stay in memory for now: %s", error)
        self.trouble = f"history: {error}"
        self._retry_s = self._monotonic() + _RETRY_S

    def begin_allocation(
        self,
        element: ElementId,
        node: str,
        time_s: float,
        gpus: int = 0,
        node_gpus: int = 0,
    ) -> None:
        """Record that an element runs on a node, or on so many GPUs of ``node_gpus``."""
        self.counts.started += 1
        names, values = "array, task, node, start_s, gpus, node_gpus", "?, ?, ?, ?, ?, ?"
        row = (element.array, element.task, node, time_s, gpus, node_gpus)
        self.write((f"INSERT INTO allocations ({names}) VALUES ({values})", row))

    def end_allocation(self, element: ElementId, time_s: float, how: str) -> None:
        """Record that an element has ended; ``how``: "shrank", "reclaimed", "ended" (by itself)."""
        self.counts.ended[how] += 1
        end = (
            "UPDATE allocations SET end_s = max(start_s, :end_s), how = :how "
            "WHERE array = :array AND task = :task AND end_s IS NULL"
        )
        one = {"array": element.array, "task": element.task, "end_s": time_s, "how": how}
        self.write((ADD_ENDED, one), (end, one))

    def open_allocations(self) -> dict[ElementId, tuple[str, float]]:
        """Return the node of each running element and when it began, as far as is known."""
        rows = self.read("SELECT array, task, node, start_s FROM allocations WHERE end_s IS NULL")
        return {ElementId(array, task): (node, start_s) for array, task, node, start_s in rows}

    def looked_s(self) -> float:
        """Return when a controller last looked at Slurm, to within a minute; infinity: never."""
        ((last_s,),) = self.read("SELECT max(end_s) FROM watches") or ((None,),)
        return math.inf if last_s is None else last_s

    def totals(self, array: int, now_s: float) -> Totals:
        """Return what a trainer has had of nodes until now."""
        return totals_of_one(self.read(TOTALS_OF_ONE, array=array, now=now_s))

    def add_delays(self, delays: Iterable[Delay]) -> None:
        """Record ordinary jobs that waited for elements."""
        for one in delays:
            self.counts.note_delay(one)
            self.write(put("preemptions", *astuple(one)))

    def delays(self, since_s: float) -> list[Delay]:
        """Return these jobs, as far as they started at or after ``since_s`` (Unix seconds)."""
        rows = self.read("SELECT * FROM preemptions WHERE time_s >= ?", since_s)
        return [Delay(*row) for row in rows]

    def add_ordinary(self, jobs: int, time_s: float) -> None:
        """Record that this number of ordinary jobs has started."""
        if jobs:
            add = "INSERT INTO ordinary VALUES (?, ?) ON CONFLICT DO UPDATE SET jobs = jobs + ?"
            self.write((add, (time_s - time_s % _PART_S, jobs, jobs)))

    def ordinary(self, since_s: float) -> int:
        """Return how many ordinary jobs have started at or after ``since_s`` (Unix seconds)."""
        query = "SELECT coalesce(sum(jobs), 0) FROM ordinary WHERE time_s >= ?"
        return sum(jobs for (jobs,) in self.read(query, since_s))

    def add_problem(self, time_s: float, document_of: Callable[[], dict[str, Any]]) -> None:
        """Record a planning problem; the file keeps the last 100.

        Problems are large, so they are dropped while the file cannot be written.
        """
        if not self._in_file or self.trouble is not None:
            return
        text = zlib.compress(json.dumps(document_of()).encode(), level=1)
        self.write(put("problems", time_s, text), keep_newest("problems", _PROBLEMS_KEPT))

    def knows_another(self, array: int, id_: str) -> bool:
        """Return whether the file knows another trainer with this array id."""
        rows = self.read("SELECT id FROM trainers WHERE array = ?", array)
        return bool(rows) and differ(id_, rows[0][0])

    def meet(self, trainer: Trainer, time_s: float) -> tuple[str | None, float]:
        """Record a trainer; Slurm forgets ended jobs.

        Data about another trainer with the same array id is dropped first: a slurmctld that lost
        its state numbers jobs from the start again. Without an id they look the same.

        Returns:
            Why it is over, None if it is not as far as is known; and when it was submitted first: a
            requeue gives an element a new time of submission.
        """
        array, record = trainer.array, trainer.record
        if self.knows_another(array, record.id or ""):
            self.forget(array)
        rows = self.read("SELECT over, submit_s FROM trainers WHERE array = ?", array)
        over, first_s = rows[0] if rows else (None, math.inf)
        submit_s = min(trainer.submit_s, first_s)
        about = trainer.user, trainer.name, submit_s, record.min_nodes, record.max_nodes
        self.write((_MEET, (array, record.id or "", time_s, *about, format_comment(record))))
        return self._ended.get(array, over), submit_s

    def records(self) -> dict[int, tuple[str, TrainerRecord, float]]:
        """Return user, record and last meeting of each trainer that is not known to be over."""
        rows = self.read("SELECT array, user, comment, time_s FROM trainers WHERE over IS NULL")
        return {array: (user, parse_comment(text), met_s) for array, user, text, met_s in rows}

    def end(self, array: int, why: str) -> None:
        """Record that a trainer is over: it has finished, or was given up."""
        self._ended[array] = why
        self.write(("UPDATE trainers SET over = ? WHERE array = ?", (why, array)))
        self.flush()

    def forget(self, array: int) -> None:
        """Drop all data about the trainer with this array id."""
        drop = "DELETE FROM {} WHERE array = ?"
        self.write(*((drop.format(one), (array,)) for one in tables_with("array")))
        self._ended.pop(array, None)

    def forget_old(self, now_s: float, living: Set[int] = frozenset()) -> None:
        """Drop data older than 90 days, except about ``living`` trainers (array ids)."""
        self.write(*delete_old(now_s, living))
        if self.trouble is None:  # otherwise the file may lack what is dropped here
            self._ended = {one: why for one, why in self._ended.items() if one in living}
