"""The history file when the disk is full or the file is locked: nothing raises, nothing is lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrainer_slurm.controller.state.history import History
from tests.controller.worlds import Clock

TABLE = "CREATE TABLE rows (value INTEGER NOT NULL UNIQUE)"
INSERT = "INSERT INTO rows VALUES (?)"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def history(tmp_path: Path, clock: Clock) -> Iterator[History]:
    made = History(tmp_path / "file.sqlite", monotonic=clock)
    made.write((TABLE, ()))
    yield made
    made.close()


@pytest.fixture
def other(tmp_path: Path, history: History) -> Iterator[sqlite3.Connection]:
    """Somebody who has locked the file."""
    connection = sqlite3.connect(tmp_path / "file.sqlite", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


def values(history: History) -> list[int]:
    return [row[0] for row in history.read("SELECT value FROM rows ORDER BY rowid")]


def test_what_could_not_be_written_is_written_later_in_its_order(
    history: History, clock: Clock, other: sqlite3.Connection
) -> None:
    for value in (1, 2, 3):
        history.write((INSERT, (value,)))
    assert history.trouble is not None
    assert "locked" in history.trouble
    other.execute("ROLLBACK")
    clock.now_s += 60
    history.write((INSERT, (4,)))
    assert (values(history), history.trouble) == ([1, 2, 3, 4], None)


def test_a_troubled_file_is_left_alone_for_a_moment(
    history: History, other: sqlite3.Connection
) -> None:
    history.write((INSERT, (1,)))
    other.execute("ROLLBACK")
    history.write((INSERT, (2,)))
    assert values(history) == []  # the clock stands still


def test_what_waits_is_written_at_the_end(
    tmp_path: Path, history: History, other: sqlite3.Connection
) -> None:
    history.write((INSERT, (1,)))
    other.execute("ROLLBACK")
    history.close()
    assert values(History(tmp_path / "file.sqlite")) == [1]


def test_a_full_disk_is_survived(history: History, clock: Clock) -> None:
    ((pages,),) = history.read("PRAGMA page_count")
    history.read(f"PRAGMA max_page_count={pages}")
    for value in range(5000):
        history.write((INSERT, (value,)))
        clock.now_s += 60 if value % 1000 == 0 else 0
    assert "full" in (history.trouble or "")
    history.read("PRAGMA max_page_count=100000")
    clock.now_s += 60
    history.write((INSERT, (5000,)))
    assert (values(history), history.trouble) == (list(range(5001)), None)


def test_a_row_that_can_never_be_written_does_not_hold_up_the_others(history: History) -> None:
    for value in (1, 1, None, 2**70, "\ud800"):
        history.write((INSERT, (value,)))
    history.write((INSERT, (2,)))
    assert (values(history), history.trouble) == ([1, 2], None)


def test_what_cannot_be_read_is_empty_and_said(history: History) -> None:
    assert history.read("SELECT * FROM absent") == []
    assert "no such table" in (history.trouble or "")
