"""The holes that the controller saw."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bftrainer_slurm.replay.logs.history import read_history
from bftrainer_slurm.replay.logs.jobs import LogError


def history(path: Path, *rows: tuple[object, object, object]) -> Path:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE holes (node TEXT, start_s REAL, end_s REAL)")
        database.executemany("INSERT INTO holes VALUES (?, ?, ?)", rows)
    database.close()
    return path


def test_holes_come_back_by_node(tmp_path: Path) -> None:
    path = history(tmp_path / "h", ("n2", 100, 200), ("n1", 150, 250))
    holes, from_s, to_s = read_history(path, 0.0)
    assert (holes.nodes, holes.start_s.tolist()) == (("n1", "n2"), [150, 100])
    assert (from_s, to_s) == (100, 250)


def test_an_open_hole_lasts_until_the_file_knows_no_more(tmp_path: Path) -> None:
    holes, _, _ = read_history(history(tmp_path / "h", ("n1", 100, None), ("n2", 100, 300)), 0.0)
    assert holes.end_s.tolist() == [300, 300]


def test_short_holes_are_left_out(tmp_path: Path) -> None:
    holes, _, _ = read_history(history(tmp_path / "h", ("n1", 100, 105), ("n1", 200, 300)), 10.0)
    assert holes.start_s.tolist() == [200]


def test_rows_that_cannot_be_are_left_out(tmp_path: Path) -> None:
    path = history(
        tmp_path / "h", ("n1", 100, 200), ("n1", "x", 200), (b"\xff", 1, 2), ("n1", 300, 200)
    )
    assert read_history(path, 0.0)[0].start_s.tolist() == [100]


def test_nothing_is_changed_and_nothing_left_behind(tmp_path: Path) -> None:
    path = history(tmp_path / "h", ("n1", 100, 200))
    before = path.read_bytes()
    read_history(path, 0.0)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_controller_may_go_on_writing(tmp_path: Path) -> None:
    path = history(tmp_path / "h", ("n1", 100, 200))
    with closing(sqlite3.connect(path, isolation_level=None)) as controller:
        controller.execute("INSERT INTO holes VALUES ('n2', 150, 300)")
        assert read_history(path, 0.0)[0].nodes == ("n1", "n2")
        controller.execute("INSERT INTO holes VALUES ('n3', 150, 300)")


def test_another_database_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other") as database:
        database.execute("CREATE TABLE t (x)")
    with pytest.raises(LogError, match="no such table"):
        read_history(tmp_path / "other", 0.0)


def test_a_history_without_holes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no hole yet"):
        read_history(history(tmp_path / "h"), 0.0)
