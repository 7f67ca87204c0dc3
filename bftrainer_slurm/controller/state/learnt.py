"""What one host's controller leaves to that of another: rows of its history, checked when read.

Whatever has damaged them on their way: rows that make no sense are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from bftrainer_slurm.controller.observe.reports import Runtime
from bftrainer_slurm.controller.state.database import Database, Statement, reading
from bftrainer_slurm.controller.state.trainer_state import differ

Row: TypeAlias = tuple[Any, ...]
Rows: TypeAlias = Mapping[str, list[Row]]  # by table, the newest last
_Value = TypeVar("_Value")

_MOST_ROWS = 10_000  # of a table; those of all tables are written at once (``Database``)
_READ_S = 15.0
# The columns of each table. Those before ``time_s`` say what a row is about.
_TABLES = {
    "trainers": ("array", "id", "time_s", "over", "begun"),
    "looks": ("user", "name", "array", "unit", "nodes", "time_s", "rate", "seconds"),
    "rescales": ("user", "name", "runtime", "grew", "time_s", "seconds"),
    "reforms": ("array", "time_s", "runtime", "generation", "nodes"),
    "asked": ("array", "task", "time_s", "node", "start_s"),
}
# One of the two ids may be empty: not known.
_LEFT = (
    "INSERT INTO trainers (array, id, time_s, over, begun) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET id = max(id, excluded.id), time_s = max(time_s, excluded.time_s), "
    "over = coalesce(over, excluded.over), begun = max(begun, excluded.begun)"
)
NO_ROWS: Rows = {table: [] for table in _TABLES}
_SAID = {
    "begun": "begun OR EXISTS (SELECT 1 FROM stays WHERE stays.array = trainers.array) AS begun"
}
# Whoever has learnt a lot must not push out the others: the newest row about each thing comes
# first, then the second ones. Of ``lessons`` the newest is the one that was written last.
_NEWER = {"looks": "rowid", "rescales": "rowid"}
_ROWS = """
SELECT {columns} FROM (
    SELECT {said}, {newer} AS place,
        row_number() OVER (PARTITION BY {about} ORDER BY {newer} DESC) AS age
    FROM {table} ORDER BY age, place DESC LIMIT {most}
) ORDER BY place
"""


def _among(*values: object) -> Callable[[Any], bool]:
    return lambda value: type(value) in (int, str) and value in values


def _whole(least: int, most: int = 10**15) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value <= most


def _text(value: object) -> bool:
    return isinstance(value, str)


def _number(value: Any) -> bool:
    """Whether plans can use a time, a rate or a duration: nan and infinity are in no range."""
    return type(value) in (int, float) and 0 < value < 1e15


_MAY_BE: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("user", "name", "id", "node"), _text),
    **dict.fromkeys(("time_s", "start_s", "rate", "seconds"), _number),
    **dict.fromkeys(("begun", "grew"), _among(0, 1)),
    **dict.fromkeys(("array", "task"), _whole(0)),
    "nodes": _whole(1, 10**6),
    "generation": _whole(1),
    "unit": _among("samples", "steps"),
    "runtime": _among(*(one.value for one in Runtime)),
    "over": lambda value: value is None or _text(value),
}


def rows_of(history: Path) -> Rows:
    """Return what the controllers of other hosts should know, from a history file.

    Raises:
        sqlite3.Error: it cannot be read now.
    """
    with reading(history, _READ_S) as database:
        return {table: database.execute(_query(table)).fetchall() for table in _TABLES}


def _query(table: str) -> str:
    columns = _TABLES[table]
    return _ROWS.format(
        table=table,
        columns=", ".join(columns),
        said=", ".join(_SAID.get(column, column) for column in columns),
        newer=_NEWER.get(table, "time_s"),
        about=", ".join(_about(table, columns)),
        most=_MOST_ROWS,
    )


def _about(table: str, row: tuple[_Value, ...]) -> tuple[_Value, ...]:
    """Return the part of a row, or of the table's columns, that says what a row is about."""
    return row[: _TABLES[table].index("time_s")]


def sensible(rows: Any) -> Rows:
    """Return those of another host's ``rows_of``, as JSON, that make sense.

    A controller of another version may have left fewer tables, or more.

    Raises:
        AttributeError, LookupError, TypeError: these are no rows.
    """

    def fits(columns: tuple[str, ...], row: Any) -> bool:
        if not isinstance(row, list) or len(row) != len(columns):
            return False
        return all(_MAY_BE[name](value) for name, value in zip(columns, row, strict=True))

    return {
        table: [tuple(row) for row in rows.get(table, ())[-_MOST_ROWS:] if fits(columns, row)]
        for table, columns in _TABLES.items()
    }


def taken_over(
    rows: Rows, database: Database, forget: Callable[[int], object], now_s: float
) -> list[Statement]:
    """Return the statements that add what is not known here; other trainers are forgotten first.

    Of two trainers under one array the one that was met later counts, with what is about it.
    """
    found = database.read("SELECT array, id, time_s FROM trainers")
    known = {array: (id_, time_s) for array, id_, time_s in found}
    gone = set()
    for array, id_, time_s, *_ in rows["trainers"]:
        own_id, own_s = known.get(array, ("", time_s))
        if differ(id_, own_id) and time_s < own_s <= now_s:
            gone.add(array)
        elif differ(id_, own_id):
            forget(array)
    looks = [row for row in rows["looks"] if row[2] not in gone]
    return [
        *((_LEFT, row) for row in rows["trainers"] if row[0] not in gone),
        *_news("looks", looks, database),
        *_news("rescales", rows["rescales"], database),
        *(_later("reforms", row, now_s) for row in rows["reforms"] if row[0] not in gone),
        *(_later("asked", row, now_s) for row in rows["asked"] if row[0] not in gone),
    ]


def _news(table: str, rows: Sequence[Row], database: Database) -> list[Statement]:
    """Return the statements that add the rows that are news here, where many are about one thing.

    They were written after the last one that is known: no matter when, clocks differ and are set.
    """
    keys = _about(table, _TABLES[table])
    known = set(database.read(f"SELECT {', '.join(keys)}, time_s FROM {table}"))
    found: list[Row] = []
    done: set[Row] = set()
    for row in reversed(rows):
        what = _about(table, row)
        if row[: len(keys) + 1] in known:
            done.add(what)
        elif what not in done:
            found.append(row)
    return [(_adding(table, "VALUES ({values})"), row) for row in reversed(found)]


def _later(table: str, row: Row, now_s: float) -> Statement:
    """Return the statement that adds a row, unless the only one about the same is as new.

    One that lies in the future is not: the clock was wrong when it was written.
    """
    keys = _about(table, _TABLES[table])
    newer = " AND ".join([*(f"{key} = ?" for key in keys), "time_s BETWEEN ? AND ?"])
    add = _adding(
        table, f"SELECT {{values}} WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE {newer})"
    )
    return add, (*row, *row[: len(keys) + 1], now_s)


def _adding(table: str, what: str) -> str:
    columns = _TABLES[table]
    values = what.format(values=", ".join("?" * len(columns)))
    return f"INSERT OR REPLACE INTO {table} ({', '.join(columns)}) {values}"
