import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from bftrainer_slurm.controller.history import History, HistoryError, Tally
from bftrainer_slurm.controller.lessons import Job, Look, Reform, Runtime
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


def damage_nothing_but_nonsense(path: Path) -> None:
    path.write_bytes(b"not a database, whatever it is called" * 100)


def damage_cut_in_half(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def damage_its_version(path: Path) -> None:
    """Let it say that it has fewer tables than it has."""
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version=1")


def damage_its_pages(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\x55" * (size - 4096))


@pytest.mark.parametrize(
    "damage",
    [damage_nothing_but_nonsense, damage_cut_in_half, damage_its_pages, damage_its_version],
)
def test_a_damaged_file_is_set_aside_and_a_new_one_begins(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    path = tmp_path / "history.sqlite"
    before = History(path)
    before.begin_stay(FIRST, "n1", 100.0)
    before.close()
    damage(path)
    damaged = path.read_bytes()
    history = History(path)
    assert history.open_stays() == {}
    history.begin_stay(SECOND, "n2", 200.0)
    history.close()
    assert (tmp_path / "history.sqlite.damaged").read_bytes() == damaged
    assert History(path).open_stays() == {SECOND: "n2"}


def test_only_the_last_damaged_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    for _ in range(3):
        damage_nothing_but_nonsense(path)
        History(path).close()
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "history.sqlite",
        "history.sqlite.damaged",
    ]


def test_a_file_that_cannot_be_opened_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "history.sqlite").mkdir()
    with pytest.raises(HistoryError, match="move it away"):
        History(tmp_path / "history.sqlite")


@pytest.mark.parametrize(
    ("version", "came_later"),
    [
        (1, ("holes", "looks", "rescales", "reforms", "looked")),
        (2, ("looks", "rescales", "reforms", "looked")),
        (3, ("looked",)),
    ],
)
def test_a_history_of_a_version_before_is_brought_up_to_date(
    tmp_path: Path, version: int, came_later: tuple[str, ...]
) -> None:
    path = tmp_path / "history.sqlite"
    before = History(path)
    before.begin_stay(FIRST, "n1", 100.0)
    before.close()
    with sqlite3.connect(path) as database:
        drops = " ".join(f"DROP TABLE {table};" for table in came_later)
        database.executescript(f"{drops} PRAGMA user_version={version};")
    after = History(path)
    after.change_holes(ended=(), began=("n1",), time_s=5.0)
    assert after.open_holes() == {"n1": 5.0}
    assert after.open_stays() == {FIRST: "n1"}
    assert after.lessons.reform(12) is None
    assert after.looked_s() is None
    assert after.trouble is None


def test_a_history_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version=99")
    with pytest.raises(HistoryError, match="another version"):
        History(path)


def test_the_samples_of_the_last_progress_are_known_after_a_restart(tmp_path: Path) -> None:
    before = History(tmp_path / "history.sqlite")
    for number in (1, 2):
        before.add_progress(12, 100.0 * number, 5.0 * number, "{}")
    before.close()
    after = History(tmp_path / "history.sqlite")
    assert (after.samples(12), after.samples(13)) == (10.0, None)


def test_until_when_all_is_written_is_known_after_a_restart(tmp_path: Path) -> None:
    before = History(tmp_path / "history.sqlite")
    for time_s in (100.0, 200.0):
        before.looked(time_s)
    before.close()
    assert History(tmp_path / "history.sqlite").looked_s() == 200.0


def test_all_that_is_known_under_an_id_can_be_forgotten_and_of_others_nothing() -> None:
    history = History(":memory:")
    for array in (12, 13):
        history.begin_stay(ElementId(array, 0), "n1", 100.0)
        history.add_progress(array, 100.0, 5.0, "{}")
        history.give_up(array, 100.0, "it fails")
        history.lessons.add_look(Job("alice", "digits"), Look(array, "samples", 1, 100.0, 5, 9))
        history.lessons.set_reform(array, Reform(100.0, Runtime.AGENT, 1, 1))
    history.forget(12)
    assert (history.tally(12), history.samples(12)) == (Tally(), None)
    assert not history.has_trained(12)
    assert history.lessons.reform(12) is None
    assert history.given_up() == {13: "it fails"}
    assert history.open_stays() == {ElementId(13, 0): "n1"}
    assert [look.array for look in history.lessons.looks(Job("alice", "digits"))] == [13]


def test_stays_begun_while_the_disk_is_full_are_counted_once_it_is_not(tmp_path: Path) -> None:
    history = History(tmp_path / "history.sqlite")
    with sqlite3.connect(tmp_path / "history.sqlite", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")  # as good as a full disk: nothing can be written
        history.begin_stay(FIRST, "n1", 100.0)
        assert history.trouble is not None
        other.execute("ROLLBACK")
    history.close()
    assert History(tmp_path / "history.sqlite").open_stays() == {FIRST: "n1"}
