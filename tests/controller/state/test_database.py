"""The history file when the disk is full or the file is locked: nothing raises, nothing is lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrainer_slurm.controller.state.database import Database
from tests.controller.worlds import Clock

UPGRADES = ("CREATE TABLE rows (value INTEGER NOT NULL UNIQUE);",)
INSERT = "INSERT INTO rows VALUES (?)"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(tmp_path: Path, clock: Clock) -> Iterator[Database]:
    made = Database(tmp_path / "file.sqlite", UPGRADES, 1, clock)
    yield made
    made.close()


@pytest.fixture
def other(tmp_path: Path, database: Database) -> Iterator[sqlite3.Connection]:
    """Somebody who has locked the file."""
    connection = sqlite3.connect(tmp_path / "file.sqlite", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


def values(database: Database) -> list[int]:
    return [row[0] for row in database.read("SELECT value FROM rows ORDER BY rowid")]


def test_what_could_not_be_written_is_written_later_in_its_order(
    database: Database, clock: Clock, other: sqlite3.Connection
) -> None:
    for value in (1, 2, 3):
        database.write((INSERT, (value,)))
    assert database.trouble is not None
    assert "locked" in database.trouble
    other.execute("ROLLBACK")
    clock.now_s += 60
    database.write((INSERT, (4,)))
    assert (values(database), database.trouble) == ([1, 2, 3, 4], None)


def test_a_troubled_file_is_left_alone_for_a_moment(
    database: Database, other: sqlite3.Connection
) -> None:
    database.write((INSERT, (1,)))
    other.execute("ROLLBACK")
    database.write((INSERT, (2,)))
    assert values(database) == []  # the clock stands still


def test_what_waits_is_written_at_the_end(
    tmp_path: Path, database: Database, other: sqlite3.Connection
) -> None:
    database.write((INSERT, (1,)))
    other.execute("ROLLBACK")
    database.close()
    assert values(Database(tmp_path / "file.sqlite", UPGRADES)) == [1]


def test_a_full_disk_is_survived(database: Database, clock: Clock) -> None:
    ((pages,),) = database.read("PRAGMA page_count")
    database.read(f"PRAGMA max_page_count={pages}")
    for value in range(5000):
        database.write((INSERT, (value,)))
        clock.now_s += 60 if value % 1000 == 0 else 0
    assert "full" in (database.trouble or "")
    database.read("PRAGMA max_page_count=100000")
    clock.now_s += 60
    database.write((INSERT, (5000,)))
    assert (values(database), database.trouble) == (list(range(5001)), None)


def test_a_row_that_can_never_be_written_does_not_hold_up_the_others(database: Database) -> None:
    for value in (1, 1, None, 2**70, "\ud800"):
        database.write((INSERT, (value,)))
    database.write((INSERT, (2,)))
    assert (values(database), database.trouble) == ([1, 2], None)


def test_what_cannot_be_read_is_empty_and_said(database: Database) -> None:
    assert database.read("SELECT * FROM absent") == []
    assert "no such table" in (database.trouble or "")
