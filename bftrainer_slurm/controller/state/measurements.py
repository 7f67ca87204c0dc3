"""What trainers report, in the history file: progress, throughput, costs of rescaling.

Throughput and costs are kept by user and job name, for trainers that are submitted again. They
are bounded: a user can fill the disk neither with measurements nor with names. Rows are ordered as
they were written, because clocks may be set; rows from the future do not count until their time.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import TypeVar
from weakref import WeakValueDictionary

import msgspec

from bftrainer_slurm.arrays import format_tasks, parse_tasks
from bftrainer_slurm.controller.observe.reports import WORK_COLUMNS, Reform, Work
from bftrainer_slurm.controller.state.failing_sizes import NOTHING_TRIED, TriedSizes
from bftrainer_slurm.controller.state.history import History, put
from bftrainer_slurm.controller.state.schema import keep_newest
from bftrainer_slurm.controller.state.stopwatch import Rescale, Throughput
from bftrainer_slurm.keeper.away import NOBODY, Engaged

THROUGHPUTS_A_SIZE = 16
THROUGHPUTS_AN_ARRAY = 256
_ARRAYS_A_NAME = 4
_NAMES_A_USER = 100
_RESCALES_A_KIND = 9
# Trainers that newer ones of their name, or newer names of their user, make superfluous.
_TOO_MUCH = """
WITH trainers AS (
    SELECT user, name, array, max(max(rowid)) OVER (PARTITION BY user, name) AS newest,
        row_number() OVER (PARTITION BY user, name ORDER BY max(rowid) DESC) AS place
    FROM looks GROUP BY user, name, array
), ranked AS (
    SELECT *, dense_rank() OVER (PARTITION BY user ORDER BY newest DESC) AS place_of_name
    FROM trainers
)
SELECT user, name, array FROM ranked WHERE place > ? OR place_of_name > ?
"""
_OF_NAME = """
SELECT array, unit, nodes, time_s, rate, seconds FROM looks
WHERE user = ?1 AND name = ?2 AND time_s <= ?3 AND array IN (
    SELECT array FROM looks WHERE user = ?1 AND name = ?2
    GROUP BY array ORDER BY array = ?4 DESC, max(rowid) DESC LIMIT ?5
) ORDER BY rowid
"""
_AHEAD_S = 60.0  # tolerated difference between clocks
_MOST_TASKS = 10_000_000
_PAUSES_KEPT = 500  # for each trainer


@dataclass(frozen=True, slots=True)
class Job:
    """The key of measurements: the next job of this user and name can use them."""

    user: str
    name: str


One = TypeVar("One", Throughput, Rescale)


def add_bounded(known: list[One], new: One, most: int) -> None:
    """Add a measurement; of its kind only the ``most`` newest stay."""
    alike = [one for one in known if one.kind == new.kind]
    if len(alike) == most:
        known.remove(alike[0])
    known.append(new)


class Rescales(list[Rescale]):
    """The rescales of all trainers of a name, oldest first; a list that can be held weakly."""


class Measurements:
    """The part of the history file that trainers fill: plans use it.

    The cost of each rescale is added to ``counts.pauses["up"]`` or ``counts.pauses["down"]``.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._rescales = WeakValueDictionary[Job, Rescales]()  # of the trainers that live

    def add_throughput(self, job: Job, throughput: Throughput) -> None:
        """Record a trainer's throughput on a number of nodes; drop the oldest beyond the limits."""
        array = {"user": job.user, "name": job.name, "array": throughput.array}
        size = {**array, "unit": throughput.unit, "nodes": throughput.nodes}
        self._history.write(
            put("looks", *size.values(), throughput.time_s, throughput.rate, throughput.seconds),
            keep_newest("looks", THROUGHPUTS_A_SIZE, **size),
            keep_newest("looks", THROUGHPUTS_AN_ARRAY, **array),
        )

    def throughputs(self, job: Job, array: int = 0) -> list[Throughput]:
        """Return the throughputs of trainer ``array`` and of the newest others of this name.

        The oldest come first. Not all others count: hundreds of trainers may have one name.
        """
        until_s = self._history.clock() + _AHEAD_S
        about = job.user, job.name, until_s, array, _ARRAYS_A_NAME + 1
        rows = self._history.read(_OF_NAME, *about)
        return [Throughput(*row) for row in rows]

    def add_rescale(self, job: Job, rescale: Rescale) -> None:
        """Record the measured cost of a rescale; drop the oldest beyond the limit."""
        if (known := self._rescales.get(job)) is not None:
            add_bounded(known, rescale, _RESCALES_A_KIND)
        self._history.counts.pauses["up" if rescale.grew else "down"].add(rescale.seconds)
        kind = {"user": job.user, "name": job.name, "grew": int(rescale.grew)}
        self._history.write(
            put("rescales", *kind.values(), rescale.time_s, rescale.seconds),
            keep_newest("rescales", _RESCALES_A_KIND, **kind),
        )

    def rescales(self, job: Job) -> Rescales:
        """Return the measured costs of rescales of all trainers of this name, oldest first.

        All that ask while one of them keeps the list share it, and see what is added.
        """
        if (known := self._rescales.get(job)) is not None:
            return known
        rows = self._history.read(
            "SELECT grew, time_s, seconds FROM rescales "
            "WHERE user = ? AND name = ? AND time_s <= ? ORDER BY rowid",
            *(job.user, job.name, self._history.clock() + _AHEAD_S),
        )
        found = (Rescale(bool(grew), *rest) for grew, *rest in rows)
        return self._rescales.setdefault(job, Rescales(found))

    def set_reform(self, array: int, reform: Reform) -> None:
        """Record a trainer's present generation."""
        row = (reform.time_s, reform.generation, reform.nodes)
        self._history.write(put("reforms", array, *row))

    def reform(self, array: int) -> Reform | None:
        """Return a trainer's present generation as far as is known."""
        rows = self._history.read(
            "SELECT time_s, generation, nodes FROM reforms WHERE array = ?", array
        )
        return next((Reform(*row) for row in rows), None)

    def set_engaged(self, array: int, engaged: Engaged) -> None:
        """Record who is in a trainer's group, and who runs its script."""
        row = (engaged.generation, format_tasks(engaged.tasks), engaged.leader)
        self._history.write(put("engaged", array, self._history.clock(), *row))

    def engaged(self, array: int) -> Engaged:
        """Return who was last in a trainer's group, and who ran its script."""
        query = "SELECT generation, tasks, leader FROM engaged WHERE array = ?"
        for generation, tasks, leader in self._history.read(query, array):
            found = parse_tasks(tasks, _MOST_TASKS) if tasks else ()
            return Engaged(generation, frozenset(found), leader)
        return NOBODY

    def forget_too_much(self, active: Collection[int]) -> None:
        """Drop measurements of all but the newest trainers of a name and names of a user.

        Those of ``active`` trainers (array ids) stay.
        """
        drop = "DELETE FROM looks WHERE user = ? AND name = ? AND array = ?"
        too_much = self._history.read(_TOO_MUCH, _ARRAYS_A_NAME, _NAMES_A_USER)
        self._history.write(*((drop, row) for row in too_much if row[2] not in active))

    def set_work(self, array: int, work: Work) -> None:
        """Record the sum of a trainer's reports."""
        self._history.write(put("work", array, *work.row))

    def work(self, array: int) -> Work | None:
        """Return the sum of a trainer's reports; None if there were none."""
        rows = self._history.read(f"SELECT {WORK_COLUMNS} FROM work WHERE array = ?", array)
        now_s = self._history.clock()
        works = map(Work.of, rows)
        return next((replace(work, time_s=min(work.time_s, now_s)) for work in works), None)

    def add_progress(self, array: int, time_s: float, samples: float) -> None:
        """Record the total of samples that a trainer has reported."""
        self._history.write(put("progress", array, time_s, samples))

    def add_pause(self, array: int, time_s: float, nodes: int, seconds: float) -> None:
        """Record how long a trainer made no progress before it resumed on ``nodes`` nodes."""
        self._history.write(
            put("pauses", array, time_s, nodes, seconds),
            keep_newest("pauses", _PAUSES_KEPT, array=array),
        )

    def samples(self, array: int) -> tuple[float, float] | None:
        """Return the last reported total of samples and its time; None if there was no report."""
        rows = self._history.read(
            "SELECT samples, time_s FROM progress WHERE array = ? ORDER BY rowid DESC LIMIT 1",
            array,
        )
        return (rows[0][0], min(rows[0][1], self._history.clock())) if rows else None

    def set_tried(self, array: int, tried: TriedSizes) -> None:
        """Record what lasts of the numbers of nodes on which a trainer has trained and failed."""
        document = json.dumps(asdict(tried.lasting), default=sorted)
        self._history.write(put("tried", array, self._history.clock(), document))

    def tried(self, array: int) -> TriedSizes:
        """Return on which numbers of nodes a trainer has trained and failed, as far as is known."""
        rows = self._history.read("SELECT document FROM tried WHERE array = ?", array)
        try:
            known = (msgspec.convert(json.loads(one), TriedSizes, str_keys=True) for (one,) in rows)
            return next(known, NOTHING_TRIED)
        except ValueError:  # another version's
            return NOTHING_TRIED

    def has_trained(self, array: int) -> bool:
        """Return whether a trainer's throughput was ever measured, so that it does train."""
        return bool(self._history.read("SELECT 1 FROM looks WHERE array = ? LIMIT 1", array))
