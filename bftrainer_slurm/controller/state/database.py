"""The SQLite file of the history. It is opened once; writes survive errors of the disk.

A write that fails stays in memory and is retried, in order, with the next writes; callers need not
care. Other processes only read the file (``reading``). This module does not know the tables.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

logger = logging.getLogger(__name__)

Statement: TypeAlias = tuple[str, Sequence[Any] | Mapping[str, Any]]

_WAIT_MS = 200  # how long to wait for another process's lock on the file
_RETRY_S = 5.0
_MOST_KEPT = 50_000  # statements kept while the disk fails; beyond that the oldest are lost
_READ_WAIT_S = 1.0
_STEPS = 100_000  # steps of SQLite's virtual machine between two checks of the deadline


def put(table: str, *values: Any) -> Statement:
    """Return a statement that writes a row and replaces one with the same key."""
    return f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(values))})", values


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


class Database:
    """An open database file. ``trouble`` says why the last write failed; None if it succeeded.

    ``upgrades`` are SQL scripts, one for each version of the file from version ``first`` on. A
    damaged file, or one older than ``first``, is moved aside and replaced by a new one.

    Raises:
        sqlite3.Error: the file cannot be opened or changed, or a later version wrote it.
    """

    def __init__(
        self,
        path: Path | str,
        upgrades: Sequence[str],
        first: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.trouble: str | None = None
        self._clock = clock
        self._waiting: deque[Statement] = deque(maxlen=_MOST_KEPT)
        self._retry_s = float("-inf")
        try:
            self._connection = _opened(path, upgrades, first)
        except sqlite3.Error as error:
            if not _is_damage(error):
                raise
            aside = _set_aside(Path(path))
            logger.error("history %s: %s; set aside as %s, a new one begins", path, error, aside)
            self._connection = _opened(path, upgrades, first)

    def write(self, *statements: Statement) -> None:
        """Execute statements in one transaction, now or as soon as the disk allows."""
        self._waiting.extend(statements)
        if not self._waiting or self._clock() < self._retry_s:
            return
        try:
            self._write_waiting()
        except sqlite3.Error as error:
            self._failed(error)
        else:
            if self.trouble is not None:
                logger.info("the history can be written again")
            self.trouble = None

    def read(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query; no rows if the file cannot be read now."""
        try:
            return self._connection.execute(query, parameters).fetchall()
        except sqlite3.Error as error:
            self._failed(error)
            return []

    def close(self) -> None:
        """Write waiting statements if possible, and close the file."""
        self._retry_s = float("-inf")
        self.write()
        self._connection.close()

    def _write_waiting(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for query, parameters in self._waiting:
                try:
                    self._connection.execute(query, parameters)
                except (sqlite3.IntegrityError, OverflowError, UnicodeError) as error:
                    logger.error("dropped a write to the history: %s", error)  # a retry fails too
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            if self._connection.in_transaction:  # a full disk ends the transaction by itself
                self._connection.execute("ROLLBACK")
            raise
        self._waiting.clear()

    def _failed(self, error: sqlite3.Error) -> None:
        if self.trouble is None:
            logger.error("cannot use the history file, writes stay in memory for now: %s", error)
        self.trouble = f"history: {error}"
        self._retry_s = self._clock() + _RETRY_S


class Spans:
    """A table of the times when nodes were in some state: ``node``, ``start_s`` and ``end_s``."""

    def __init__(self, database: Database, table: str) -> None:
        self._database = database
        self._table = table

    def open(self) -> dict[str, float]:
        """Return the nodes that are in the state as far as is known, and when each entered it."""
        query = f"SELECT node, start_s FROM {self._table} WHERE end_s IS NULL"
        return dict(self._database.read(query))

    def change(self, ended: Iterable[str], began: Iterable[str], time_s: float) -> None:
        """Record which nodes have left the state and which have entered it."""
        end = f"UPDATE {self._table} SET end_s = max(start_s, ?) WHERE node = ? AND end_s IS NULL"
        begin = f"INSERT INTO {self._table} (node, start_s) VALUES (?, ?)"
        statements: list[Statement] = [(end, (time_s, node)) for node in ended]
        statements += ((begin, (node, time_s)) for node in began)
        self._database.write(*statements)


class _DamageError(sqlite3.DatabaseError):
    """The file is a database, but parts of it are wrong."""


@contextmanager
def reading(path: Path, deadline_s: float) -> Iterator[sqlite3.Connection]:
    """Open the file read-only; all queries together may take ``deadline_s`` seconds.

    Raises:
        sqlite3.Error: the file cannot be read now, or not within the deadline.
    """
    # If no writer runs, a reader would otherwise leave behind a write-ahead log of its own, which
    # the writer may not be allowed to touch.
    mode = "ro" if path.with_name(f"{path.name}-wal").exists() else "ro&immutable=1"
    address = f"file:{quote(str(path))}?mode={mode}"
    with closing(sqlite3.connect(address, uri=True, timeout=_READ_WAIT_S)) as connection:
        until_s = time.monotonic() + deadline_s
        connection.set_progress_handler(lambda: time.monotonic() > until_s, _STEPS)
        yield connection


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


def _opened(path: Path | str, upgrades: Sequence[str], first: int) -> sqlite3.Connection:
    """Open a file, check it for inconsistencies, and upgrade it to the present version."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute(f"PRAGMA busy_timeout={_WAIT_MS}")
        ((found,),) = connection.execute("PRAGMA quick_check(1)").fetchall()
        if found != "ok":
            raise _DamageError(str(found))
        _upgrade(connection, upgrades, first)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _upgrade(connection: sqlite3.Connection, upgrades: Sequence[str], first: int) -> None:
    """Apply the upgrades that the file lacks, all of them or none."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    newest = first + len(upgrades) - 1
    if version > newest:
        raise sqlite3.DatabaseError(f"written by another version ({version})")
    if version == newest:
        return
    if 0 < version < first:
        raise _DamageError(f"written by an early version ({version})")
    script = "".join(upgrades[version - first + 1 if version else 0 :])
    try:
        connection.executescript(f"BEGIN; {script} PRAGMA user_version={newest}; COMMIT;")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:  # tables do not match the file's version
            raise _DamageError(str(error)) from error
        raise
