"""The history file: its tables in SQL, how it is opened, and kept small.

Only the controller writes to it (``history``); other processes read it (``reading``).
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

logger = logging.getLogger(__name__)

Statement: TypeAlias = tuple[str, Sequence[Any] | Mapping[str, Any]]

_KEEP_S = 90 * 86400.0
_WAIT_MS = 200  # how long to wait for another process's lock on the file
_REMOTE_WAIT_MS = 2000  # readers keep the writer of a rollback journal waiting
_READ_WAIT_S = 1.0
_STEPS = 100_000  # steps of SQLite's virtual machine between two checks of the deadline
VERSION = 3
TABLES = """
-- Elements on nodes; on a node that jobs share: how many of its GPUs. No GPUs: the whole node.
CREATE TABLE allocations (
    array INTEGER NOT NULL, task INTEGER NOT NULL, node TEXT NOT NULL,
    start_s REAL NOT NULL, end_s REAL, how TEXT,
    gpus INTEGER NOT NULL DEFAULT 0, node_gpus INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX allocations_by_array ON allocations (array);
CREATE INDEX allocations_by_end ON allocations (end_s);
CREATE UNIQUE INDEX one_allocation_at_a_time ON allocations (array, task) WHERE end_s IS NULL;
CREATE INDEX oldest_allocation ON allocations (array, start_s) WHERE end_s IS NULL;
-- Sums over the allocations of a trainer that have ended, see ``statistics``.
CREATE TABLE totals (
    array INTEGER PRIMARY KEY, start_s REAL NOT NULL, end_s REAL NOT NULL,
    shrank INTEGER NOT NULL, reclaimed INTEGER NOT NULL, ended INTEGER NOT NULL,
    node_s REAL NOT NULL, gpu_s REAL NOT NULL, with_nodes_s REAL NOT NULL
);
CREATE INDEX totals_by_end ON totals (end_s);
-- Holes; outages of nodes; from when to when a controller has looked.
CREATE TABLE holes (node TEXT NOT NULL, start_s REAL NOT NULL, end_s REAL);
CREATE UNIQUE INDEX one_hole_at_a_time ON holes (node) WHERE end_s IS NULL;
CREATE INDEX holes_by_end ON holes (end_s);
CREATE TABLE nodes (node TEXT PRIMARY KEY);
CREATE TABLE outages (node TEXT NOT NULL, start_s REAL NOT NULL, end_s REAL);
CREATE UNIQUE INDEX one_outage_at_a_time ON outages (node) WHERE end_s IS NULL;
CREATE INDEX outages_by_end ON outages (end_s);
CREATE TABLE watches (start_s REAL PRIMARY KEY, end_s REAL NOT NULL);
CREATE TABLE preemptions (time_s REAL NOT NULL, elements INTEGER NOT NULL, delay_s REAL NOT NULL);
CREATE INDEX preemptions_by_time ON preemptions (time_s);
-- How many ordinary jobs have started, in parts of five minutes.
CREATE TABLE ordinary (time_s REAL PRIMARY KEY, jobs INTEGER NOT NULL);

-- ``id`` tells a trainer from another one with the same array id; ``over`` says why it ended. The
-- rest is for the time when Slurm has forgotten it, or its user has replaced its comment.
CREATE TABLE trainers (
    array INTEGER PRIMARY KEY, id TEXT NOT NULL, time_s REAL NOT NULL,
    user TEXT NOT NULL, name TEXT NOT NULL, submit_s REAL NOT NULL,
    min_nodes INTEGER NOT NULL, max_nodes INTEGER NOT NULL, comment TEXT NOT NULL, over TEXT
);
-- What else the next controller has to know of a trainer, as JSON: a dataclass of each kind.
CREATE TABLE documents (
    array INTEGER, kind TEXT, time_s REAL NOT NULL, document TEXT NOT NULL,
    PRIMARY KEY (array, kind)
);

-- What trainers report; ``pauses``: at each change of nodes. Of one that makes it larger (1) or
-- smaller (0), the next trainers of its name have the cost too.
CREATE TABLE progress (
    array INTEGER NOT NULL, time_s REAL NOT NULL, samples REAL NOT NULL
);
CREATE INDEX progress_by_array ON progress (array, time_s);
CREATE TABLE pauses (
    array INTEGER NOT NULL, user TEXT NOT NULL, name TEXT NOT NULL, grew INTEGER,
    time_s REAL NOT NULL, nodes INTEGER NOT NULL, seconds REAL NOT NULL
);
CREATE INDEX pauses_by_array ON pauses (array, time_s);
CREATE INDEX pauses_by_name ON pauses (user, name, grew);

-- What is measured, see ``measurements``.
CREATE TABLE curves (
    user TEXT NOT NULL, name TEXT NOT NULL, unit TEXT NOT NULL, nodes INTEGER NOT NULL,
    array INTEGER NOT NULL, time_s REAL NOT NULL, rate REAL NOT NULL, seconds REAL NOT NULL,
    looks INTEGER NOT NULL,  -- measurements; ``rate`` and ``batch`` are their medians
    batch REAL, noise REAL,
    PRIMARY KEY (user, name, unit, nodes)
);

-- The problems of the last plans: JSON, compressed by zlib.
CREATE TABLE problems (time_s REAL NOT NULL, document BLOB NOT NULL);
"""
# How much of its node an allocation is.
NODE_SHARE = "CASE WHEN gpus AND node_gpus THEN min(1.0, 1.0 * gpus / node_gpus) ELSE 1.0 END"
# How many GPUs it has of a node that jobs share; 0 of others.
GPUS = "CASE WHEN gpus THEN gpus ELSE node_gpus END"


def opened(path: Path | str, remote: bool = False) -> sqlite3.Connection:
    """Open the file for its only writer.

    A damaged file is moved aside and replaced by a new one. A ``remote`` file is on a file server
    and gets a rollback journal: a write-ahead log needs memory that all its processes share.

    Raises:
        sqlite3.Error: the file cannot be opened or changed, or another version wrote it.
    """
    try:
        return _opened(path, remote)
    except sqlite3.Error as error:
        if not _is_damage(error):
            raise
        aside = _set_aside(Path(path))
        logger.error("history %s: %s; set aside as %s, a new one begins", path, error, aside)
        return _opened(path, remote)


@contextmanager
def reading(path: Path, deadline_s: float) -> Iterator[sqlite3.Connection]:
    """Open the file read-only; all queries together may take ``deadline_s`` seconds.

    Raises:
        sqlite3.Error: the file cannot be read now, or not within the deadline.
    """
    # If no writer runs, a reader would otherwise leave behind a write-ahead log of its own, which
    # the writer may not be allowed to touch.
    unused = _uses_log(path) and not path.with_name(f"{path.name}-wal").exists()
    mode = "ro&immutable=1" if unused else "ro"
    address = f"file:{quote(str(path))}?mode={mode}"
    with closing(sqlite3.connect(address, uri=True, timeout=_READ_WAIT_S)) as connection:
        until_s = time.monotonic() + deadline_s
        connection.set_progress_handler(lambda: time.monotonic() > until_s, _STEPS)
        yield connection


def _uses_log(path: Path) -> bool:
    """Return whether a database has a write-ahead log, by its header (sqlite.org/fileformat)."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(20)[18:] == b"\2\2"
    return False


def keep_newest(table: str, count: int, **values: Any) -> Statement:
    """Return a statement that deletes all but the ``count`` newest rows with these column values.

    The newest rows are those that were written last.
    """
    these = " AND ".join(f"{column} = ?" for column in values) or "true"
    return (
        f"DELETE FROM {table} WHERE {these} AND rowid NOT IN "
        f"(SELECT rowid FROM {table} WHERE {these} ORDER BY rowid DESC LIMIT {count})",
        (*values.values(), *values.values()),
    )


def delete_old(now_s: float, living: Iterable[int]) -> list[Statement]:
    """Return statements that delete data older than 90 days, except about ``living`` trainers.

    Those are given by array id.
    """
    lives = f"array IN ({', '.join(map(str, living))})"
    return [
        (
            f"DELETE FROM {table} WHERE {column} < ?"
            + (f" AND NOT {lives}" if table in tables_with("array") else ""),
            (now_s - _KEEP_S,),
        )
        for column in ("end_s", "time_s")
        for table in tables_with(column)
    ]


@cache
def tables_with(column: str) -> list[str]:
    """Return the tables that have this column."""
    query = "SELECT m.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE c.name = ?"
    with closing(sqlite3.connect(":memory:")) as schema:
        schema.executescript(TABLES)
        return [table for (table,) in schema.execute(f"{query} AND m.type = 'table'", (column,))]


class _DamageError(sqlite3.DatabaseError):
    """The file is a database, but parts of it are wrong."""


def _is_damage(error: sqlite3.Error) -> bool:
    """Whether an error means that the file itself is damaged, and not just that its disk fails."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, _DamageError) or code in (
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
    )


def _set_aside(path: Path) -> Path:
    """Move a database file aside and return its new name; replace a file moved there earlier."""
    aside = path.with_name(f"{path.name}.damaged")
    for end in ("", "-wal", "-shm"):  # these files belong together
        aside.with_name(f"{aside.name}{end}").unlink(missing_ok=True)
        part = path.with_name(f"{path.name}{end}")
        if part.exists():
            part.rename(aside.with_name(f"{aside.name}{end}"))
    return aside


def _opened(path: Path | str, remote: bool) -> sqlite3.Connection:
    """Open a file, check it for inconsistencies, and make the tables in a new one."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute(f"PRAGMA busy_timeout={_REMOTE_WAIT_MS if remote else _WAIT_MS}")
        connection.execute(f"PRAGMA journal_mode={'TRUNCATE' if remote else 'WAL'}")
        connection.execute(f"PRAGMA synchronous={'FULL' if remote else 'NORMAL'}")
        ((found,),) = connection.execute("PRAGMA quick_check(1)").fetchall()
        if found != "ok":
            raise _DamageError(str(found))
        _make_tables(connection)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _make_tables(connection: sqlite3.Connection) -> None:
    """Make all tables, or none, in a new file.

    Raises:
        sqlite3.Error: another version wrote the file, or it cannot be changed.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == VERSION:
        return
    if version:
        raise sqlite3.DatabaseError(f"written by another version ({version})")
    try:
        connection.executescript(f"BEGIN; {TABLES} PRAGMA user_version={VERSION}; COMMIT;")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:  # it has tables, but no version
            raise _DamageError(str(error)) from error
        raise
