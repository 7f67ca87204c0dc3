"""The history file: holes, allocations of elements on nodes, problems, progress, measurements.

Slurm knows none of this. Only the controller writes; a reader opens the file read-only.
"""

from __future__ import annotations

import json
import math
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

from bftrainer_slurm.controller.state.database import Database, Spans, Statement, keep_newest, put
from bftrainer_slurm.controller.state.goodput import WORK_COLUMNS, Allocations, Tally, Work
from bftrainer_slurm.controller.state.measurements import Measurements
from bftrainer_slurm.controller.state.schema import FIRST, UPGRADES, delete_old, tables_with
from bftrainer_slurm.controller.state.statistics import LATE_S, Counts, Preemption
from bftrainer_slurm.controller.state.trainer_state import differ
from bftrainer_slurm.model import Element, ElementId, Trainer

_PROBLEMS_KEPT = 100
_PAUSES_KEPT = 500  # for each trainer
_PART_S = 300.0  # starts of ordinary jobs are counted in periods of this length


class HistoryError(Exception):
    """The history file cannot be used; the message names the file and the remedy."""


class History:
    """The history file. Only opening it raises ``HistoryError``.

    What cannot be written waits, and ``trouble`` says why. A damaged file is moved aside and
    replaced: trainers can be planned without their past. The clock may have been wrong, for example
    at boot, so rows may lie in the future of ``clock`` (Unix seconds); they stay, and delay
    nothing. ``counts`` are the events that this process has recorded. ``news`` is set when the
    controllers on other hosts should learn something at once.
    """

    def __init__(self, path: Path | str, clock: Callable[[], float] = time.time) -> None:
        try:
            self.database = Database(path, UPGRADES, FIRST)
        except sqlite3.Error as error:
            raise HistoryError(f"history {path}: {error}; move it away to get a new one") from error
        self.counts = Counts()
        self.clock = clock
        self.measurements = Measurements(self.database, self.counts.pauses, clock)
        self.holes = Spans(self.database, "holes")
        self.news = threading.Event()
        self._in_file = path != ":memory:"
        self._allocations: dict[int, Allocations] = {}
        self._ended: dict[int, str] = {}  # why trainers are over; the file may not have it yet
        self._preemptions: list[Preemption] | None = None  # a cache of the table

    @property
    def trouble(self) -> str | None:
        """Why the file cannot be written now; None if it can."""
        return self.database.trouble

    def begin_allocation(
        self,
        element: ElementId,
        node: str,
        time_s: float,
        gpus: int = 0,
        cores: int = 0,
        units: int = 0,
    ) -> None:
        """Record that an element runs on a node, or on so many of the GPUs or cores of a node.

        ``units`` is how many of these the node has.
        """
        self.counts.started += 1
        allocations = self._allocations.get(element.array)
        if allocations is not None and not allocations.begin(element.task, time_s):
            del self._allocations[element.array]
        names, values = "array, task, node, start_s, gpus, cores, units", "?, ?, ?, ?, ?, ?, ?"
        row = (element.array, element.task, node, time_s, gpus, cores, units)
        self.database.write((f"INSERT INTO allocations ({names}) VALUES ({values})", row))

    def end_allocation(self, element: ElementId, time_s: float, how: str) -> None:
        """Record that an element has ended; ``how``: "shrank", "reclaimed", "ended" (by itself)."""
        self.counts.ended[how] += 1
        allocations = self._allocations.get(element.array)
        if allocations is not None and not allocations.end(element.task, time_s, how):
            del self._allocations[element.array]
        end = (
            "UPDATE allocations SET end_s = max(start_s, ?), how = ? "
            "WHERE array = ? AND task = ? AND end_s IS NULL"
        )
        ended = (time_s, how, element.array, element.task)
        self.database.write((end, ended), _unask(element))

    def open_allocations(self) -> dict[ElementId, str]:
        """Return the node of each running element, as far as is known."""
        rows = self.database.read("SELECT array, task, node FROM allocations WHERE end_s IS NULL")
        return {ElementId(array, task): node for array, task, node in rows}

    def ask(self, elements: Iterable[Element], time_s: float) -> None:
        """Record that running elements are asked to leave their nodes."""
        rows = ((one.id.array, one.id.task, time_s, one.node, one.start_s) for one in elements)
        self.database.write(*(put("asked", *row) for row in rows))
        self.news.set()

    def unask(self, elements: Iterable[ElementId]) -> None:
        """Record that elements were not asked to leave after all."""
        self.database.write(*(_unask(one) for one in elements))
        self.news.set()

    def asked(self, array: int) -> set[tuple[Any, ...]]:
        """Return the elements of a trainer that were asked to leave and may still be there.

        Each is given as its task, its node, and Slurm's time of its start: all hosts know these.
        """
        query = "SELECT task, node, start_s FROM asked WHERE array = ?"
        return set(self.database.read(query, array))

    def tally(self, array: int) -> Tally:
        """Return the summary of one trainer's allocations."""
        if (known := self._allocations.get(array)) is not None:
            return known.tally
        query = "SELECT task, start_s, end_s, how FROM allocations WHERE array = ?"
        rows = self.database.read(query, array)
        if self.trouble is not None and not rows:
            return Tally()  # the file may be unreadable now, so do not cache this
        self._allocations[array] = Allocations(rows)
        return self._allocations[array].tally

    def set_work(self, array: int, work: Work) -> None:
        """Record the sum of a trainer's reports."""
        self.database.write(put("work", array, *work.row))

    def work(self, array: int) -> Work | None:
        """Return the sum of a trainer's reports; None if there were none."""
        rows = self.database.read(f"SELECT {WORK_COLUMNS} FROM work WHERE array = ?", array)
        now_s = self.clock()
        works = map(Work.of, rows)
        return next((replace(work, time_s=min(work.time_s, now_s)) for work in works), None)

    def add_preemptions(self, preemptions: Iterable[Preemption]) -> None:
        """Record ordinary jobs for which Slurm had to preempt elements first."""
        for one in preemptions:
            self.counts.delays.add(one.delay_s)
            self.counts.preempted_elements += one.elements
            self.counts.late_jobs += one.delay_s > LATE_S
            self.database.write(put("preemptions", *astuple(one)))
            if self._preemptions is not None:
                self._preemptions.append(one)

    def preemptions(self, since_s: float) -> list[Preemption]:
        """Return these jobs, as far as they started at or after ``since_s`` (Unix seconds)."""
        if self._preemptions is None:
            rows = self.database.read("SELECT * FROM preemptions WHERE time_s >= ?", since_s)
            self._preemptions = [Preemption(*row) for row in rows]
        return [one for one in self._preemptions if one.time_s >= since_s]

    def add_ordinary(self, jobs: int, time_s: float) -> None:
        """Record that this number of ordinary jobs has started."""
        if jobs:
            add = "INSERT INTO ordinary VALUES (?, ?) ON CONFLICT DO UPDATE SET jobs = jobs + ?"
            self.database.write((add, (time_s - time_s % _PART_S, jobs, jobs)))

    def ordinary(self, since_s: float) -> int:
        """Return how many ordinary jobs have started at or after ``since_s`` (Unix seconds)."""
        query = "SELECT coalesce(sum(jobs), 0) FROM ordinary WHERE time_s >= ?"
        return sum(jobs for (jobs,) in self.database.read(query, since_s))

    def add_problem(self, time_s: float, document_of: Callable[[], dict[str, Any]]) -> None:
        """Record a planning problem; the file keeps the last 100.

        Problems are large, so they are dropped while the file cannot be written.
        """
        if not self._in_file or self.trouble is not None:
            return
        text = zlib.compress(json.dumps(document_of()).encode(), level=1)
        self.database.write(put("problems", time_s, text), keep_newest("problems", _PROBLEMS_KEPT))

    def add_progress(self, array: int, time_s: float, samples: float) -> None:
        """Record the total of samples that a trainer has reported."""
        self.database.write(put("progress", array, time_s, samples))

    def add_pause(self, array: int, time_s: float, nodes: int, seconds: float) -> None:
        """Record how long a trainer made no progress before it resumed on ``nodes`` nodes."""
        self.database.write(
            put("pauses", array, time_s, nodes, seconds),
            keep_newest("pauses", _PAUSES_KEPT, array=array),
        )

    def samples(self, array: int) -> tuple[float, float] | None:
        """Return the last reported total of samples and its time; None if there was no report."""
        rows = self.database.read(
            "SELECT samples, time_s FROM progress WHERE array = ? ORDER BY rowid DESC LIMIT 1",
            array,
        )
        return (rows[0][0], min(rows[0][1], self.clock())) if rows else None

    def has_trained(self, array: int) -> bool:
        """Return whether a trainer's throughput was ever measured, so that it does train."""
        return bool(self.database.read("SELECT 1 FROM looks WHERE array = ? LIMIT 1", array))

    def has_begun(self, array: int) -> bool:
        """Return whether a trainer has ever had a node; true if the file cannot be read."""
        if self.trouble is not None or self.tally(array).grew > 0:
            return True
        return bool(self.database.read("SELECT 1 FROM trainers WHERE array = ? AND begun", array))

    def knows_another(self, array: int, id_: str) -> bool:
        """Return whether the file knows another trainer with this array id."""
        rows = self.database.read("SELECT id FROM trainers WHERE array = ?", array)
        return bool(rows) and differ(id_, rows[0][0])

    def meet(self, array: int, id_: str, time_s: float) -> str | None:
        """Record a trainer; return why it is over, None if it is not over as far as is known.

        Data about another trainer with the same array id is dropped first: a slurmctld that lost
        its state numbers jobs from the start again. Without an ``id_`` they look the same.
        """
        if self.knows_another(array, id_):
            self.forget(array)
        rows = self.database.read("SELECT over FROM trainers WHERE array = ?", array)
        met = (
            "INSERT INTO trainers (array, id, time_s) VALUES (?, ?, ?) "
            "ON CONFLICT DO UPDATE SET id = excluded.id, time_s = excluded.time_s"
        )
        self.database.write((met, (array, id_, time_s)))
        return self._ended.get(array, rows[0][0] if rows else None)

    def describe(self, trainer: Trainer, time_s: float) -> float:
        """Record a trainer's user and name, because Slurm forgets ended jobs.

        Return when it was submitted first: a requeue gives an element a new time of submission.
        """
        array = trainer.array
        before = self.database.read("SELECT submit_s FROM met WHERE array = ?", array)
        submit_s: float = min(trainer.submit_s, *(first_s for (first_s,) in before), math.inf)
        wants = (trainer.record.min_nodes, trainer.record.max_nodes)
        row = (array, time_s, trainer.user, trainer.name, submit_s, *wants)
        self.database.write(put("met", *row))
        return submit_s

    def end(self, array: int, why: str) -> None:
        """Record that a trainer is over: it has finished, or was given up."""
        self._ended[array] = why
        self.database.write(("UPDATE trainers SET over = ? WHERE array = ?", (why, array)))
        self.news.set()

    def end_unseen(self) -> None:
        """Close rows left open by this host's last controller; another host has worked since.

        Their real ends are unknown, so the rows end when they began.
        """
        self._allocations.clear()
        self.database.write(
            ("UPDATE allocations SET end_s = start_s, how = 'unseen' WHERE end_s IS NULL", ()),
            ("UPDATE holes SET end_s = start_s WHERE end_s IS NULL", ()),
            ("UPDATE outages SET end_s = start_s WHERE end_s IS NULL", ()),
        )

    def forget(self, array: int) -> None:
        """Drop all data about the trainer with this array id."""
        these = (
            (f"DELETE FROM {table} WHERE array = ?", (array,)) for table in tables_with("array")
        )
        self.database.write(*these)
        self._allocations.pop(array, None)
        self._ended.pop(array, None)

    def tidy(self, now_s: float, living: Collection[int]) -> None:
        """Drop old and surplus data, except about ``living`` trainers (array ids)."""
        self.forget_old(now_s, living)
        self.measurements.forget_too_much(living)

    def forget_old(self, now_s: float, living: Iterable[int] = ()) -> None:
        """Drop data older than 90 days, except about ``living`` trainers (array ids)."""
        self.database.write(*delete_old(now_s, living))
        self._allocations.clear()
        self._preemptions = None

    def close(self) -> None:
        """Close the file."""
        self.database.close()


def _unask(element: ElementId) -> Statement:
    return "DELETE FROM asked WHERE array = ? AND task = ?", (element.array, element.task)
