"""What one host's controller leaves to that of another: rows of its history, checked when read.

Of each trainer: whether it is over, has begun or has trained, its generation, and who was asked to
leave. Curves and costs are measured anew. Rows that make no sense are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from bftrainer_slurm.controller.state.database import Database, Statement, reading
from bftrainer_slurm.controller.state.trainer_state import differ

Row: TypeAlias = tuple[Any, ...]
Rows: TypeAlias = Mapping[str, list[Row]]  # by table, the newest last

_MOST_ROWS = 10_000  # of a table; those of all tables are written at once (``Database``)
_READ_S = 15.0
_Number: TypeAlias = Annotated[float, msgspec.Meta(gt=0, lt=1e15)]
_Id: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
_Generation: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=10**15)]
_Nodes: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=10**6)]
_Runtime: TypeAlias = Literal["c10d", "bftrainer", "in-process"]
_Unit: TypeAlias = Literal["samples", "steps"]
# The columns of each table. There is one row of each array, or task that was asked.
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
    "begun": "begun OR EXISTS (SELECT 1 FROM stays WHERE stays.array = trainers.array) AS begun"
}
_ROWS = """
SELECT {columns} FROM (
    SELECT {said}, row_number() OVER (PARTITION BY {about} ORDER BY time_s DESC) AS age
    FROM {table} ORDER BY age, time_s DESC LIMIT {most}
) WHERE age = 1 ORDER BY time_s
"""
# One that lies in the future is not newer: the clock was wrong when it was written.
_LATER = """
INSERT OR REPLACE INTO {table} ({columns}) SELECT {values}
WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE {these} AND time_s BETWEEN ? AND ?)
"""


def _about(table: str) -> list[str]:
    """Return the columns that say what a row is about."""
    return [column for column in ("array", "task") if column in _TABLES[table]]


def rows_of(history: Path) -> Rows:
    """Return what the controllers of other hosts should know, from a history file.

    Raises:
        sqlite3.Error: it cannot be read now.
    """
    with reading(history, _READ_S) as database:
        return {table: database.execute(_query(table)).fetchall() for table in _TABLES}


def _query(table: str) -> str:
    columns, about = _TABLES[table], ", ".join(_about(table))
    said = ", ".join(_SAID.get(column, column) for column in columns)
    return _ROWS.format(
        table=table, columns=", ".join(columns), said=said, about=about, most=_MOST_ROWS
    )


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
    news: list[Statement] = [(_LEFT, row) for row in rows["trainers"] if row[0] not in gone]
    for table in ("looks", "reforms", "asked"):
        array = [*_TABLES[table]].index("array")
        news += (_later(table, row, now_s) for row in rows[table] if row[array] not in gone)
    return news


def _later(table: str, row: Row, now_s: float) -> Statement:
    """Return the statement that adds a row, unless one about the same is as new."""
    columns, about = _TABLES[table], _about(table)
    query = _LATER.format(
        table=table,
        columns=", ".join(columns),
        values=", ".join("?" * len(columns)),
        these=" AND ".join(f"{column} = ?" for column in about),
    )
    named = dict(zip(columns, row, strict=True))
    return query, (*row, *(named[column] for column in (*about, "time_s")), now_s)
