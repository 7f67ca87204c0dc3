"""What the history file holds of trainers, for who reads beside the controller. Read-only.

What of it is shown to whom is ``publish``'s business.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from bftrainer_slurm.controller.state.database import address_to_read
from bftrainer_slurm.controller.state.goodput import Work
from bftrainer_slurm.controller.state.history import HistoryError
from bftrainer_slurm.controller.state.schema import UPGRADES

_WAIT_S = 2.0
_DEADLINE_S = 15.0  # of all questions together; whoever asked has gone by then
_STEPS = 100_000  # of SQLite's machine, after which it asks whether to go on
_MOST_SAMPLES = 2_000
_MOST_TRAINERS = 2_000  # the newest
_WITHIN = "(end_s IS NULL OR end_s > ?)"

Samples: TypeAlias = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Met:
    """Who a trainer is. ``over`` says why it has ended, None: it has not, as far as is known."""

    array: int
    user: str
    name: str
    submit_s: float
    min_nodes: int
    max_nodes: int
    over: str | None


@dataclass(frozen=True, slots=True)
class Stay:
    """A time that an element spent on a node. ``end_s`` None: it is there still."""

    node: str
    start_s: float
    end_s: float | None
    how: str | None


@dataclass(frozen=True, slots=True)
class Sum:
    """What a trainer's stays come to, within some time. ``last_s`` None: it has nodes now."""

    grew: int
    shrank: int
    reclaimed: int
    node_s: float
    first_s: float
    last_s: float | None


@dataclass(frozen=True, slots=True)
class Pause:
    """A trainer stood still for so many seconds, and went on at ``time_s`` with so many nodes."""

    time_s: float
    nodes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Past:
    """All that is kept of one trainer; ``samples`` are pairs of time and samples so far."""

    met: Met
    stays: tuple[Stay, ...]
    samples: Samples
    pauses: tuple[Pause, ...]
    work: Work | None


class PastTrainers:
    """An open history file.

    Raises from its methods and ``opened``:
        HistoryError: it cannot be read.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._rows = connection.execute

    def sums(self, since_s: float, now_s: float) -> list[tuple[Met, Sum]]:
        """Return the trainers that had nodes from ``since_s`` on, newest first."""
        query = (
            "SELECT m.array, m.user, m.name, m.submit_s, m.min_nodes, m.max_nodes, t.over, "
            "s.grew, s.shrank, s.reclaimed, s.node_s, s.first_s, s.last_s FROM ("
            "  SELECT array, total(start_s >= :since) AS grew, total(how = 'shrank') AS shrank, "
            "  total(how = 'reclaimed') AS reclaimed, "
            "  total(coalesce(end_s, :now) - max(start_s, :since)) AS node_s, "
            "  min(start_s) AS first_s, "
            "  iif(count(end_s) = count(*), max(end_s), NULL) AS last_s "
            # +: by way of the index of ends; that of arrays would lead through all 90 days
            "  FROM stays WHERE end_s IS NULL OR end_s > :since GROUP BY +array"
            ") AS s JOIN met AS m USING (array) LEFT JOIN trainers AS t USING (array) "
            "ORDER BY m.submit_s DESC, m.array DESC LIMIT :most"
        )
        named = {"since": since_s, "now": now_s, "most": _MOST_TRAINERS}
        found = []
        for row in self._rows(query, named):
            grew, shrank, reclaimed, node_s, first_s, last_s = row[7:]
            counts = (int(grew), int(shrank), int(reclaimed), max(0.0, node_s))
            found.append((Met(*row[:7]), Sum(*counts, first_s, last_s)))
        return found

    def stays(self, since_s: float) -> dict[int, list[Stay]]:
        """Return the stays of all trainers that lasted beyond ``since_s``, by array."""
        found: dict[int, list[Stay]] = {}
        query = f"SELECT array, node, start_s, end_s, how FROM stays WHERE {_WITHIN}"
        for array, *rest in self._rows(query, (since_s,)):
            found.setdefault(array, []).append(Stay(*rest))
        return found

    def of(self, array: int, since_s: float) -> Past | None:
        """Return what is known of one trainer from ``since_s`` on, None: nothing of it."""
        query = (
            "SELECT array, user, name, submit_s, min_nodes, max_nodes, over "
            "FROM met LEFT JOIN trainers USING (array) WHERE array = ?"
        )
        met = [Met(*row) for row in self._rows(query, (array,))]
        if not met:
            return None
        ours = (array, since_s)
        query = f"SELECT node, start_s, end_s, how FROM stays WHERE array = ? AND {_WITHIN}"
        stays = tuple(Stay(*row) for row in self._rows(f"{query} ORDER BY start_s", ours))
        query = "SELECT time_s, samples FROM progress WHERE array = ? AND time_s > ?"
        latest = f"{query} ORDER BY time_s DESC LIMIT {_MOST_SAMPLES}"
        samples = tuple(sorted(self._rows(latest, ours)))
        query = "SELECT time_s, nodes, seconds FROM pauses WHERE array = ? AND time_s > ?"
        pauses = tuple(Pause(*row) for row in self._rows(f"{query} ORDER BY time_s", ours))
        query = "SELECT since_s, time_s, trained_s, rescaling_s, generation FROM work"
        work = next((Work(*row) for row in self._rows(f"{query} WHERE array = ?", (array,))), None)
        return Past(met[0], stays, samples, pauses, work)


@contextmanager
def opened(path: Path) -> Iterator[PastTrainers]:
    """Open a history file for reading.

    Raises:
        HistoryError: there is none, it cannot be read, or is of another version.
    """
    try:
        address = address_to_read(path)
        with closing(sqlite3.connect(address, uri=True, timeout=_WAIT_S)) as connection:
            until_s = time.monotonic() + _DEADLINE_S
            connection.set_progress_handler(lambda: time.monotonic() > until_s, _STEPS)
            ((version,),) = connection.execute("PRAGMA user_version").fetchall()
            if version != len(UPGRADES):
                raise HistoryError(f"history {path}: written by another version ({version})")
            yield PastTrainers(connection)
    except (sqlite3.Error, TypeError, ValueError) as error:
        raise HistoryError(f"history {path}: {error}") from error
