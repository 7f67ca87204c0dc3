import sqlite3
from pathlib import Path

import pytest

from bftrainer_slurm.controller.history import History, HistoryError, Tally
from bftrainer_slurm.model import ElementId

FIRST, SECOND = ElementId(12, 0), ElementId(12, 1)


def test_stays_are_counted_by_how_they_ended(tmp_path: Path) -> None:
    history = History(tmp_path / "history.sqlite")
    for how in ("shrank", "reclaimed", "reclaimed", "ended"):
        history.begin_stay(FIRST, "n1", 100.0)
        history.end_stay(FIRST, 110.0, how)
    assert history.tally(12) == Tally(grew=4, shrank=1, reclaimed=2, node_s=40.0)


def test_open_stays_are_known_after_a_restart(tmp_path: Path) -> None:
    before = History(tmp_path / "history.sqlite")
    before.begin_stay(FIRST, "n1", 100.0)
    before.begin_stay(SECOND, "n2", 100.0)
    before.end_stay(SECOND, 120.0, "ended")
    before.close()
    assert History(tmp_path / "history.sqlite").open_stays() == {FIRST: "n1"}


def test_what_is_old_is_forgotten_but_not_what_still_runs(tmp_path: Path) -> None:
    history = History(tmp_path / "history.sqlite")
    history.begin_stay(FIRST, "n1", 100.0)
    history.end_stay(FIRST, 110.0, "ended")
    history.begin_stay(SECOND, "n2", 100.0)
    history.forget_old(1e9)
    assert history.tally(12).grew == 1
    assert history.open_stays() == {SECOND: "n2"}


def test_a_file_that_is_no_history_is_refused_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    path.write_bytes(b"not a database, whatever it is called" * 100)
    with pytest.raises(HistoryError, match="move it away"):
        History(path)


def test_a_history_of_the_version_before_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    before = History(path)
    before.begin_stay(FIRST, "n1", 100.0)
    before.close()
    with sqlite3.connect(path) as database:
        database.executescript("DROP TABLE holes; PRAGMA user_version=1;")
    after = History(path)
    after.change_holes(ended=(), began=("n1",), time_s=5.0)
    assert after.open_holes() == {"n1": 5.0}
    assert after.open_stays() == {FIRST: "n1"}
