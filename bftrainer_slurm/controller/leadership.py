"""A controller with a second host: it works while its host has the lease, and shares its results.

``keeper.lease`` holds the lease, and ends the process with it. Each host has a history of its own,
because two hosts must not write one SQLite file. To the folder that they share it copies rows of
that: of each trainer whether it is over, has begun or has trained, its generation, and who was
asked to leave. Curves and costs are measured anew. Rows that make no sense are left out when read.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from bftrainer_slurm.controller.state.database import Statement, reading
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.trainer_state import differ
from bftrainer_slurm.keeper.lease import host_name, wait_to_lead
from bftrainer_slurm.slurm.detour import SLOW_S, Detour
from bftrainer_slurm.slurm.gateway import Gateway, SlurmUnavailableError
from bftrainer_slurm.slurm.run import SlurmRunner
from bftrainer_slurm.slurm.wrappers import leader_only

logger = logging.getLogger(__name__)

_WORD = "controller.json"
_SHARE_EVERY_S = 60.0
_LAST_S = 5.0  # for the last word, before the process ends
_LARGEST = 64 * 2**20  # bytes
# A slurmctld that has not taken over yet makes a command sleep for half its SlurmctldTimeout.
_ANSWER_S = 4.0
_AGAIN_S = 0.5
_LONGEST_WAIT_S = 600.0  # after this the loop says that slurmctld does not answer


Row: TypeAlias = tuple[Any, ...]
Rows: TypeAlias = Mapping[str, list[Row]]  # by table, the newest last

_MOST_ROWS = 10_000  # of a table; those of all tables are written at once (``Database``)
_READ_S = 15.0  # for the rows of a history
_Number: TypeAlias = Annotated[float, msgspec.Meta(gt=0, lt=1e15)]
_Id: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
_Generation: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=10**15)]
_Nodes: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=10**6)]
_Runtime: TypeAlias = Literal["c10d", "bftrainer", "in-process"]
_Unit: TypeAlias = Literal["samples", "steps"]
_ABOUT = {"array", "task"}  # columns: there is one row of each array, or task that was asked
# The columns of each table.
_TABLES: Mapping[str, Mapping[str, Any]] = {
    "trainers": {"array": _Id, "id": str, "time_s": _Number, "over": str | None}
    | {"begun": Literal[0, 1]},
    "looks": {"user": str, "name": str, "array": _Id, "unit": _Unit, "nodes": _Nodes}
    | dict.fromkeys(("time_s", "rate", "seconds"), _Number),
    "reforms": {"array": _Id, "time_s": _Number, "runtime": _Runtime}
    | {"generation": _Generation, "nodes": _Nodes},
    "asked": {"array": _Id, "task": _Id, "time_s": _Number, "node": str, "start_s": _Number},
}
_TYPES = {table: GenericAlias(tuple, tuple(columns.values())) for table, columns in _TABLES.items()}
# One of the two ids may be empty: not known.
_LEFT = (
    "INSERT INTO trainers (array, id, time_s, over, begun) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET id = max(id, excluded.id), time_s = max(time_s, excluded.time_s), "
    "over = coalesce(over, excluded.over), begun = max(begun, excluded.begun)"
)
NO_ROWS: Rows = {table: [] for table in _TABLES}
_SAID = {
    "begun": "begun OR EXISTS (SELECT 1 FROM allocations a WHERE a.array = trainers.array) AS begun"
}
_ROWS = """
SELECT {columns} FROM (
    SELECT {said}, row_number() OVER (PARTITION BY {about} ORDER BY time_s DESC) AS age
    FROM {table} ORDER BY age, time_s DESC LIMIT ?
) WHERE age = 1 ORDER BY time_s
"""
# One that lies in the future is not newer: the clock was wrong when it was written.
_LATER = """
INSERT OR REPLACE INTO {table} ({columns}) SELECT {values}
WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE {these} AND time_s BETWEEN :time_s AND :now_s)
"""


def take_the_lead(
    shared: Path, state: Path, gateway: Gateway, beat: Callable[[], object] = lambda: None
) -> Gateway:
    """Return when this host's controller is the one that works, with its gateway to Slurm.

    ``shared`` is the folder that all hosts see, ``state`` this host's own. ``beat`` is called
    again and again meanwhile.

    Raises:
        OSError, StateError: one of the folders cannot be used.
    """
    lease = wait_to_lead("controller", shared, state, beat)
    detour = Detour(state / "detour")
    _wait_for_slurmctld(detour, beat)
    return leader_only(gateway, lease.holds, detour)


def _wait_for_slurmctld(detour: Detour, beat: Callable[[], object]) -> None:
    """Wait until slurmctld answers: it may have lost its host too, and take over later."""
    runner = SlurmRunner(timeout_s=_ANSWER_S)
    until_s = time.monotonic() + _LONGEST_WAIT_S
    while time.monotonic() < until_s:
        beat()
        detour.before_request()
        detour.after_request(SLOW_S)  # the host that worked before may be silent
        try:
            runner.read("scontrol", "show", "reservation")
        except SlurmUnavailableError:
            time.sleep(_AGAIN_S)
        else:
            return


class SharedHistory(History):
    """This host's history, with what controllers have left in the shared folder.

    A thread of its own writes there, once a minute, and when a trainer is over or an element is
    asked to leave: no turn waits for a slow file system.

    Raises:
        HistoryError: the file cannot be used.
        OSError: the shared folder cannot be read.
    """

    def __init__(self, state: Path, shared: Path) -> None:
        self._file, self._word = state / "history.sqlite", shared / _WORD
        super().__init__(self._file)
        self._host = host_name(state)
        host, rows = _read(self._word)
        if host != self._host:
            self.end_unseen()
        take_over(self, rows)
        self._closes = False
        self._sharing = threading.Thread(target=self._share_news, name="sharing", daemon=True)
        self._sharing.start()

    def close(self) -> None:
        """Share the last news, and close the file."""
        self._closes = True
        self.news.set()
        self._sharing.join(_LAST_S)
        super().close()

    def _share_news(self) -> None:
        closes = False
        while not closes:
            closes = self._closes  # if so, what comes next is the last
            try:
                # A file that lacks what was noted must not take the place of what others left.
                if self.trouble is None:
                    self._share()
            except Exception as error:
                logger.warning(
                    "%s was not written (%s): the other hosts do not learn what this one does",
                    self._word,
                    error,
                )
            if not closes:
                self.news.wait(_SHARE_EVERY_S)
                self.news.clear()

    def _share(self) -> None:
        text = json.dumps({"host": self._host, "rows": rows_of(self._file)})
        beside = self._word.with_name(f"{_WORD}.{self._host}")
        with beside.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._word)


def _read(word: Path) -> tuple[str, Rows]:
    """Return which host has written last, and what it has left; both may be empty."""
    try:
        with word.open("rb") as file:
            said = json.loads(file.read(_LARGEST))
        host, told = str(said["host"]), said["rows"]
        rows = valid_rows(told)
        if left_out := sum(len(told.get(table, ())) - len(rows[table]) for table in rows):
            logger.warning("%s: rows left out: %d; is it of another version?", word, left_out)
        return host, rows
    except FileNotFoundError:
        return "", NO_ROWS
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        logger.error(
            "%s cannot be read (%s): trainers that were given up may be tried again", word, error
        )
        return "", NO_ROWS


def rows_of(history: Path) -> Rows:
    """Return what the controllers of other hosts should know, from a history file.

    Raises:
        sqlite3.Error: it cannot be read now.
    """
    found: dict[str, list[Row]] = {}
    with reading(history, _READ_S) as database:
        for table, columns in _TABLES.items():
            names, about = ", ".join(columns), ", ".join(_ABOUT & columns.keys())
            said = ", ".join(_SAID.get(column, column) for column in columns)
            query = _ROWS.format(table=table, columns=names, said=said, about=about)
            found[table] = database.execute(query, (_MOST_ROWS,)).fetchall()
    return found


def valid_rows(rows: Any) -> Rows:
    """Return those of another host's ``rows_of``, as JSON, that make sense.

    A controller of another version may have left fewer tables, or more.

    Raises:
        AttributeError, LookupError, TypeError: these are no rows.
    """

    def fitting(table: str) -> Iterator[Row]:
        for row in rows.get(table, ())[-_MOST_ROWS:]:
            try:
                yield msgspec.convert(row, _TYPES[table])
            except (msgspec.ValidationError, OverflowError):
                continue

    return {table: list(fitting(table)) for table in _TABLES}


def take_over(history: History, rows: Rows) -> None:
    """Add to a history what is not known there; other trainers are forgotten first.

    Of two trainers under one array the one that was met later counts, with what is about it.
    """
    now_s = history.clock()
    found = history.database.read("SELECT array, id, time_s FROM trainers")
    own = {array: (id_, time_s) for array, id_, time_s in found}
    gone = set()
    for array, id_, time_s, *_ in rows["trainers"]:
        own_id, own_s = own.get(array, ("", time_s))
        if differ(id_, own_id) and time_s < own_s <= now_s:
            gone.add(array)
        elif differ(id_, own_id):
            history.forget(array)
    news: list[Statement] = [(_LEFT, row) for row in rows["trainers"] if row[0] not in gone]
    for table in ("looks", "reforms", "asked"):
        known = (dict(zip(_TABLES[table], row, strict=True)) for row in rows[table])
        news += (_later(table, one, now_s) for one in known if one["array"] not in gone)
    history.database.write(*news)


def _later(table: str, row: Mapping[str, Any], now_s: float) -> Statement:
    """Return the statement that adds a row, unless one about the same is as new."""
    query = _LATER.format(
        table=table,
        columns=", ".join(row),
        values=", ".join(f":{column}" for column in row),
        these=" AND ".join(f"{column} = :{column}" for column in _ABOUT & row.keys()),
    )
    return query, {**row, "now_s": now_s}
