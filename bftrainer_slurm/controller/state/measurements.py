"""What trainers report, in the history file: progress, throughput, costs of rescaling.

Throughput and costs are kept by user and job name, for trainers that are submitted again: of
throughput a row for each size. They are bounded: a user cannot fill the disk with them. Rows are
ordered as they were written, because clocks may be set; rows from the future do not count yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import median
from typing import TypeVar

import msgspec

from bftrainer_slurm.controller.observe.reports import Work
from bftrainer_slurm.controller.state.history import History, put
from bftrainer_slurm.controller.state.schema import keep_newest
from bftrainer_slurm.controller.state.stopwatch import Rescale, Throughput
from bftrainer_slurm.planner.curves.news import FIRST_S

_SIZES_A_NAME = 256
_SIZES_A_USER = 4_000
RESCALES_A_KIND = 9
_AHEAD_S = 60.0  # tolerated difference between clocks
_PAUSES_KEPT = 500  # for each trainer


@dataclass(frozen=True, slots=True)
class Job:
    """The key of measurements: the next job of this user and name can use them."""

    user: str
    name: str


Kept = TypeVar("Kept")


class Measurements:
    """The part of the history file that trainers fill: plans use it.

    The cost of each rescale is added to ``counts.pauses["up"]`` or ``counts.pauses["down"]``.
    """

    def __init__(self, history: History) -> None:
        self._history = history

    def set_curve(self, job: Job, known: Sequence[Throughput]) -> None:
        """Record what is ``known`` of one size, in place of what an earlier trainer has shown."""
        seconds = sum(one.seconds for one in known)
        if seconds < FIRST_S:
            return
        last, rate = known[-1], median(one.rate for one in known)
        batches = [one.batch for one in known if one.batch is not None]
        batch = median(batches) if batches else None
        of_user = {"user": job.user}
        of_name = of_user | {"name": job.name}
        row = *of_name.values(), last.unit, last.nodes, last.array, last.time_s, rate, seconds
        self._history.write(
            put("curves", *row, len(known), batch, last.noise),
            keep_newest("curves", _SIZES_A_NAME, **of_name),
            keep_newest("curves", _SIZES_A_USER, **of_user),
        )

    def throughputs(self, job: Job) -> list[Throughput]:
        """Return what is known of the curve of this name: as many throughputs as were measured."""
        rows = self._history.read(
            "SELECT looks, array, unit, nodes, time_s, rate, seconds / looks, batch, noise "
            "FROM curves "
            "WHERE user = ? AND name = ? AND time_s <= ? ORDER BY rowid",
            *(job.user, job.name, self._history.clock() + _AHEAD_S),
        )
        return [Throughput(*row) for looks, *row in rows for _ in range(looks)]

    def rescales(self, job: Job) -> list[Rescale]:
        """Return the last measured costs of rescales of trainers of this name, oldest first."""
        rows = [
            row
            for grew in (0, 1)
            for row in self._history.read(
                "SELECT rowid, grew, time_s, seconds FROM pauses WHERE user = ? AND name = ? "
                f"AND grew = ? AND time_s <= ? ORDER BY rowid DESC LIMIT {RESCALES_A_KIND}",
                *(job.user, job.name, grew, self._history.clock() + _AHEAD_S),
            )
        ]
        return [Rescale(bool(grew), *rest) for _, grew, *rest in sorted(rows)]

    def keep(self, array: int, value: object) -> None:
        """Record a trainer's present ``value`` of its type: a dataclass, as JSON."""
        text = msgspec.json.encode(value).decode()
        row = array, type(value).__name__, self._history.clock(), text
        self._history.write(put("documents", *row))

    def kept(self, array: int, of: type[Kept]) -> Kept | None:
        """Return what was recorded of this type; None: nothing, or another version wrote it."""
        query = "SELECT document FROM documents WHERE array = ? AND kind = ?"
        for (text,) in self._history.read(query, array, of.__name__):
            with suppress(ValueError):
                return msgspec.json.decode(text, type=of)
        return None

    def work(self, array: int) -> Work | None:
        """Return the sum of a trainer's reports; None if there were none."""
        work, now_s = self.kept(array, Work), self._history.clock()
        return work and replace(work, time_s=min(work.time_s, now_s))

    def add_progress(self, array: int, time_s: float, samples: float) -> None:
        """Record the total of samples that a trainer has reported."""
        self._history.write(put("progress", array, time_s, samples))

    def add_pause(
        self, job: Job, array: int, time_s: float, nodes: int, seconds: float, grew: bool | None
    ) -> None:
        """Record how long a trainer made no progress before it resumed on ``nodes`` nodes.

        ``grew``: whether it had fewer before; None if it had as many, or this is not known.
        """
        if grew is not None:
            self._history.counts.pauses["up" if grew else "down"].add(seconds)
        self._history.write(
            put("pauses", array, job.user, job.name, grew, time_s, nodes, seconds),
            keep_newest("pauses", _PAUSES_KEPT, array=array),
        )

    def samples(self, array: int) -> tuple[float, float] | None:
        """Return the last reported total of samples and its time; None if there was no report."""
        rows = self._history.read(
            "SELECT samples, time_s FROM progress WHERE array = ? ORDER BY rowid DESC LIMIT 1",
            array,
        )
        return (rows[0][0], min(rows[0][1], self._history.clock())) if rows else None
