"""What one host's controller leaves to that of another: rows of its history, checked when read.

Whatever has damaged them on their way: rows that make no sense are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from bftrainer_slurm.controller.observe.reports import Runtime
from bftrainer_slurm.controller.state.database import Statement, reading

Row: TypeAlias = tuple[Any, ...]
Rows: TypeAlias = Mapping[str, list[Row]]  # by table, oldest first

_MOST_ROWS = 12_000  # of a table: the newest ones
_READ_S = 15.0
# The columns of each table. Those before ``time_s`` say what a row is about.
_TABLES = {
    "trainers": ("array", "id", "time_s", "over", "begun"),
    "looks": ("user", "name", "array", "unit", "nodes", "time_s", "rate", "seconds"),
    "rescales": ("user", "name", "runtime", "grew", "time_s", "seconds"),
    "reforms": ("array", "time_s", "runtime", "generation", "nodes"),
    "asked": ("array", "task", "time_s", "node", "start_s"),
}
NO_ROWS: Rows = {table: [] for table in _TABLES}
_FROM = {
    "trainers": "(SELECT array, id, time_s, over, begun OR EXISTS "
    "(SELECT 1 FROM stays WHERE stays.array = trainers.array) AS begun FROM trainers)"
}


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
        return {
            table: database.execute(
                f"SELECT {', '.join(columns)} FROM {_FROM.get(table, table)} "
                f"ORDER BY time_s DESC LIMIT {_MOST_ROWS}"
            ).fetchall()[::-1]
            for table, columns in _TABLES.items()
        }


def sensible(rows: Any, now_s: float) -> Rows:
    """Return those of another host's ``rows_of``, as JSON, that make sense now.

    What has yet to come is left out: nothing that is learnt until then would count as news. A
    controller of another version may have left fewer tables, or more.

    Raises:
        AttributeError, TypeError: these are no rows.
    """

    def fits(columns: tuple[str, ...], row: Any) -> bool:
        if not isinstance(row, list) or len(row) != len(columns):
            return False
        said: dict[str, Any] = dict(zip(columns, row, strict=True))
        return all(_MAY_BE[name](value) for name, value in said.items()) and said["time_s"] <= now_s

    return {
        table: [tuple(row) for row in rows.get(table, ())[-_MOST_ROWS:] if fits(columns, row)]
        for table, columns in _TABLES.items()
    }


def news(table: str, row: Row) -> Statement:
    """Return the statement that adds a row, unless one about the same is there that is as new."""
    columns = _TABLES[table]
    about = columns.index("time_s")
    same = " AND ".join([*(f"{name} = ?" for name in columns[:about]), "time_s >= ?"])
    return (
        f"INSERT OR REPLACE INTO {table} ({', '.join(columns)}) "
        f"SELECT {', '.join('?' * len(columns))} "
        f"WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE {same})",
        (*row, *row[: about + 1]),
    )
