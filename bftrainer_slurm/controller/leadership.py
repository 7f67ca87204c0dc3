"""Failover between hosts: the controller works while its host has the lease, and shares its state.

``keeper.lease`` holds the lease, and ends the process when it loses it. Each host has its own
history, because two hosts must not write to one SQLite file. The working host copies some rows to a
shared folder: for each trainer whether it is over, has begun or has trained, its generation, the
elements that were asked to leave, and the sizes on which its script fails. Curves and costs are
measured again. Invalid rows are skipped when they are read.
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

from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.schema import Statement, reading
from bftrainer_slurm.controller.state.trainer_state import differ
from bftrainer_slurm.keeper.lease import host_name, wait_to_lead
from bftrainer_slurm.slurm.detour import SLOW_S, Detour
from bftrainer_slurm.slurm.gateway import Gateway, SlurmUnavailableError
from bftrainer_slurm.slurm.run import SlurmRunner
from bftrainer_slurm.slurm.wrappers import leader_only

logger = logging.getLogger(__name__)

_WORD = "controller.json"
_SHARE_EVERY_S = 60.0
_LAST_S = 5.0  # how long the end of the process waits for the last write
_LARGEST = 64 * 2**20  # bytes
# A slurmctld that has not taken over yet makes a command sleep for half its SlurmctldTimeout.
_ANSWER_S = 4.0
_AGAIN_S = 0.5
_LONGEST_WAIT_S = 600.0  # then the loop starts anyway, and reports that slurmctld is silent


Row: TypeAlias = tuple[Any, ...]
Rows: TypeAlias = Mapping[str, list[Row]]  # by table, newest last

_MOST_ROWS = 10_000  # per table; the rows of all tables are written at once (``History``)
_READ_S = 15.0  # the deadline for reading the rows of a history
_Number: TypeAlias = Annotated[float, msgspec.Meta(gt=0, lt=1e15)]
_Id: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
_Generation: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=10**15)]
_Nodes: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=10**6)]
_Unit: TypeAlias = Literal["samples", "steps"]
_ABOUT = {"array", "task"}  # key columns: one row for each array, or asked task
# The columns of each table.
_TABLES: Mapping[str, Mapping[str, Any]] = {
    "trainers": {"array": _Id, "id": str, "time_s": _Number, "over": str | None}
    | {"begun": Literal[0, 1]},
    "looks": {"user": str, "name": str, "array": _Id, "unit": _Unit, "nodes": _Nodes}
    | dict.fromkeys(("time_s", "rate", "seconds"), _Number),
    "reforms": {"array": _Id, "time_s": _Number, "generation": _Generation, "nodes": _Nodes},
    "asked": {"array": _Id, "task": _Id, "time_s": _Number, "node": str, "start_s": _Number},
    "tried": {"array": _Id, "time_s": _Number, "document": str},
}
_TYPES = {table: GenericAlias(tuple, tuple(columns.values())) for table, columns in _TABLES.items()}
# One of the two ids may be empty, which means unknown.
_MERGE = (
    "INSERT INTO trainers (array, id, time_s, over, begun) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET id = max(id, excluded.id), time_s = max(time_s, excluded.time_s), "
    "over = coalesce(over, excluded.over), begun = max(begun, excluded.begun)"
)
NO_ROWS: Rows = {table: [] for table in _TABLES}
_EXPRESSIONS = {
    "begun": "begun OR EXISTS (SELECT 1 FROM allocations a WHERE a.array = trainers.array) AS begun"
}
_ROWS = """
SELECT {columns} FROM (
    SELECT {expressions}, row_number() OVER (PARTITION BY {about} ORDER BY time_s DESC) AS age
    FROM {table} ORDER BY age, time_s DESC LIMIT ?
) WHERE age = 1 ORDER BY time_s
"""
# A row in the future does not count as newer: the clock was wrong when it was written.
_LATER = """
INSERT OR REPLACE INTO {table} ({columns}) SELECT {values}
WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE {these} AND time_s BETWEEN :time_s AND :now_s)
"""


def take_the_lead(
    shared: Path, state: Path, gateway: Gateway, beat: Callable[[], object] = lambda: None
) -> Gateway:
    """Wait until this host has the lease; return the gateway to Slurm for the working controller.

    ``shared`` is the folder that all hosts see, ``state`` this host's own. ``beat`` is called
    repeatedly during the wait.

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
        detour.after_request(SLOW_S)  # the first host of slurmctld may be silent
        try:
            runner.read("scontrol", "show", "reservation")
        except SlurmUnavailableError:
            time.sleep(_AGAIN_S)
        else:
            return


class SharedHistory(History):
    """This host's history, with the rows that other controllers have left in the shared folder.

    A thread writes there once a minute, and when a trainer is over or an element is asked to leave.
    So no turn waits for a slow file system.

    Raises:
        HistoryError: the history file cannot be used.
        OSError: the shared folder cannot be read.
    """

    def __init__(self, state: Path, shared: Path) -> None:
        self._file, self._word = state / "history.sqlite", shared / _WORD
        super().__init__(self._file)
        self._host = host_name(state)
        host, rows = _read(self._word)
        if host != self._host:
            end_unseen(self)
        take_over(self, rows)
        self._closes = False
        self._sharing = threading.Thread(target=self._share_news, name="sharing", daemon=True)
        self._sharing.start()

    def close(self) -> None:
        """Write to the shared folder a last time, and close the file."""
        self._closes = True
        self.news.set()
        self._sharing.join(_LAST_S)
        super().close()

    def _share_news(self) -> None:
        closes = False
        while not closes:
            closes = self._closes  # if true, the next write is the last
            try:
                # If rows could not be saved here, do not replace what others have left.
                if self.trouble is None:
                    self._share()
            except Exception as error:
                logger.warning(
                    "cannot write %s (%s): the other hosts do not get this host's latest state",
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
    """Return the host that wrote last, and its rows; both may be empty."""
    try:
        with word.open("rb") as file:
            document = json.loads(file.read(_LARGEST))
        host, found = str(document["host"]), document["rows"]
        rows = valid_rows(found)
        if skipped := sum(len(found.get(table, ())) - len(rows[table]) for table in rows):
            logger.warning("%s: invalid rows skipped: %d; is it of another version?", word, skipped)
        return host, rows
    except FileNotFoundError:
        return "", NO_ROWS
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        logger.error(
            "cannot read %s (%s): trainers that were given up may be tried again", word, error
        )
        return "", NO_ROWS


def end_unseen(history: History) -> None:
    """Close rows left open by this host's last controller; another host has worked since.

    Their real ends are unknown, so the rows end when they began.
    """
    history.write(
        ("UPDATE allocations SET end_s = start_s, how = 'unseen' WHERE end_s IS NULL", ()),
        ("UPDATE holes SET end_s = start_s WHERE end_s IS NULL", ()),
        ("UPDATE outages SET end_s = start_s WHERE end_s IS NULL", ()),
    )


def rows_of(history: Path) -> Rows:
    """Return the rows of a history file that the controllers of other hosts need.

    Raises:
        sqlite3.Error: the file cannot be read now.
    """
    found: dict[str, list[Row]] = {}
    with reading(history, _READ_S) as database:
        for table, columns in _TABLES.items():
            names, about = ", ".join(columns), ", ".join(_ABOUT & columns.keys())
            select = ", ".join(_EXPRESSIONS.get(column, column) for column in columns)
            query = _ROWS.format(table=table, columns=names, expressions=select, about=about)
            found[table] = database.execute(query, (_MOST_ROWS,)).fetchall()
    return found


def valid_rows(rows: Any) -> Rows:
    """Return the valid ones of another host's ``rows_of``, read from JSON.

    A controller of another version may have written fewer tables, or more.

    Raises:
        AttributeError, LookupError, TypeError: ``rows`` is not a table of rows.
    """

    def fitting(table: str) -> Iterator[Row]:
        for row in rows.get(table, ())[-_MOST_ROWS:]:
            try:
                yield msgspec.convert(row, _TYPES[table])
            except (msgspec.ValidationError, OverflowError):
                continue

    return {table: list(fitting(table)) for table in _TABLES}


def take_over(history: History, rows: Rows) -> None:
    """Add the rows that a history lacks; drop what it has about replaced trainers.

    Of two trainers with the same array id, the one that was seen later stays, with its rows.
    """
    now_s = history.clock()
    found = history.read("SELECT array, id, time_s FROM trainers")
    own = {array: (id_, time_s) for array, id_, time_s in found}
    gone = set()
    for array, id_, time_s, *_ in rows["trainers"]:
        own_id, own_s = own.get(array, ("", time_s))
        if differ(id_, own_id) and time_s < own_s <= now_s:
            gone.add(array)
        elif differ(id_, own_id):
            history.forget(array)
    news: list[Statement] = [(_MERGE, row) for row in rows["trainers"] if row[0] not in gone]
    for table in ("looks", "reforms", "asked", "tried"):
        known = (dict(zip(_TABLES[table], row, strict=True)) for row in rows[table])
        news += (_later(table, one, now_s) for one in known if one["array"] not in gone)
    history.write(*news)


def _later(table: str, row: Mapping[str, Any], now_s: float) -> Statement:
    """Return the statement that adds a row, unless there is a row with its key that is as new."""
    query = _LATER.format(
        table=table,
        columns=", ".join(row),
        values=", ".join(f":{column}" for column in row),
        these=" AND ".join(f"{column} = :{column}" for column in _ABOUT & row.keys()),
    )
    return query, {**row, "now_s": now_s}
