import json
import math
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from bftrainer_slurm.controller.observe.reports import Work
from bftrainer_slurm.controller.state.history import History, HistoryError
from bftrainer_slurm.controller.state.measurements import Job, Measurements
from bftrainer_slurm.controller.state.schema import reading
from bftrainer_slurm.controller.state.statistics import Delay, Totals
from bftrainer_slurm.controller.state.stopwatch import Throughput
from bftrainer_slurm.keeper.messages import Engaged
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.reader.past import past_problem
from bftrainer_slurm.reader.stories import read_history
from tests.controller.setting import Setting
from tests.controller.worlds import ARRAY, NOW_S, trainer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


YEAR_S = 365 * 86_400.0
FIRST, SECOND = ElementId(12, 0), ElementId(12, 1)


def meet(history: History, array: int, id_: str, time_s: float) -> str | None:
    """Meet a trainer with this id; return why it is over."""
    plain = trainer(array=array)
    return history.meet(replace(plain, record=replace(plain.record, id=id_)), time_s)[0]


def test_what_is_old_is_forgotten_but_not_what_still_runs(path: Path) -> None:
    history = History(path)
    history.begin_allocation(FIRST, "n1", 100.0)
    history.end_allocation(FIRST, 110.0, "ended")
    history.begin_allocation(SECOND, "n2", 100.0)
    history.forget_old(1e9)
    assert history.totals(12, NOW_S).grew == 1
    assert history.open_allocations() == {SECOND: ("n2", 100.0)}


def test_of_trainers_that_are_gone_nothing_stays_in_memory_but_what_the_file_lacks(
    path: Path,
) -> None:
    history = History(path)
    for array in (12, 13):
        meet(history, array, "id", NOW_S)
        history.begin_allocation(ElementId(array, 0), "n1", NOW_S)
        history.end(array, "given up")
    with closing(sqlite3.connect(path)) as another:
        another.execute("BEGIN IMMEDIATE")
        history.end(14, "finished")
        history.forget_old(NOW_S, {13})
        assert history._ended.keys() == {12, 13, 14}
    history._retry_s = -math.inf
    history.forget_old(NOW_S, {13})
    assert history._ended.keys() == {13}
    assert (meet(history, 12, "id", NOW_S), history.totals(12, NOW_S).grew) == ("given up", 1)


def test_a_clock_that_is_far_ahead_at_boot_loses_nothing() -> None:
    history = History(":memory:")
    history.begin_allocation(FIRST, "n1", NOW_S - 50)
    history.end_allocation(FIRST, NOW_S, "ended")
    for _ in range(2):  # it crashes, and is started again
        setting = Setting(1, history=history)
        setting.now_s += YEAR_S
        setting.controller = setting.started()
        setting.turn()
        assert history.totals(12, NOW_S).grew == 1
    setting.turn(3600)  # a clock that nobody sets is right
    assert history.totals(12, NOW_S).grew == 0


def test_what_was_noted_in_the_future_holds_up_nothing() -> None:
    history = History(":memory:", lambda: NOW_S)
    Measurements(history).add_progress(ARRAY, NOW_S + YEAR_S, 7.0)
    Measurements(history).add_progress(ARRAY, NOW_S, 3.0)
    Measurements(history).keep(ARRAY, Work(NOW_S - 60, NOW_S + YEAR_S, trained_s=50.0))
    assert Measurements(history).samples(ARRAY) == (3.0, NOW_S)
    assert Measurements(history).work(ARRAY) == Work(NOW_S - 60, NOW_S, trained_s=50.0)


def damage_nothing_but_nonsense(path: Path) -> None:
    path.write_bytes(b"not a database, whatever it is called" * 100)


def damage_cut_in_half(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def damage_its_version(path: Path) -> None:
    """Let it say that it has no tables."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version=0")


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
    path: Path, damage: Callable[[Path], None]
) -> None:
    before = History(path)
    before.begin_allocation(FIRST, "n1", 100.0)
    before.close()
    damage(path)
    damaged = path.read_bytes()
    history = History(path)
    assert history.open_allocations() == {}
    history.begin_allocation(SECOND, "n2", 200.0)
    history.close()
    assert path.with_suffix(".sqlite.damaged").read_bytes() == damaged
    assert History(path).open_allocations() == {SECOND: ("n2", 200.0)}


def test_only_the_last_damaged_file_is_kept(path: Path) -> None:
    path.with_name("history.sqlite.damaged-wal").touch()  # another one's
    for _ in range(3):
        damage_nothing_but_nonsense(path)
        History(path).close()
    left = {one.name for one in path.parent.iterdir()}
    assert left == {"history.sqlite", "history.sqlite.damaged"}


def test_a_file_that_cannot_be_opened_is_refused_with_a_remedy(path: Path) -> None:
    path.mkdir()
    with pytest.raises(HistoryError, match="move it away"):
        History(path)


def test_a_history_of_another_version_is_refused_with_a_remedy(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version=99")
    with pytest.raises(HistoryError, match=r"another version \(99\); move it away"):
        History(path)


def test_another_trainer_under_the_same_array_id_begins_without_the_past_of_the_first(
    path: Path,
) -> None:
    history = History(path)
    meet(history, 12, "0000000a", 100.0)
    Measurements(history).add_pause(Job("alice", "digits"), 12, 100.0, 2, 1.0, None)
    history.begin_allocation(FIRST, "n1", 100.0)
    history.end(12, "it fails")
    assert meet(history, 12, "0000000b", 200.0) is None
    assert (history.totals(12, NOW_S), history.open_allocations()) == (Totals(), {})
    anew = read_history(path, "12", 0.0, NOW_S, None, private=False)["trainer"]
    assert (anew["over"], anew["rescales"], anew["total"]["grew"]) == (None, [], 0)


@pytest.mark.parametrize(("before", "now"), [("", "0000000a"), ("0000000a", ""), ("", "")])
def test_trainers_that_carry_no_id_look_all_alike(before: str, now: str) -> None:
    history = History(":memory:")
    meet(history, 12, before, 100.0)
    history.end(12, "it fails")
    assert meet(history, 12, now, 200.0) == "it fails"


def test_all_that_is_known_under_an_id_can_be_forgotten_and_of_others_nothing() -> None:
    history = History(":memory:")
    for array in (12, 13):
        history.begin_allocation(ElementId(array, 0), "n1", 100.0)
        Measurements(history).add_progress(array, 100.0, 5.0)
        meet(history, array, "0000000a", 100.0)
        history.end(array, "it fails")
        Measurements(history).set_curve(
            Job("alice", "digits"), [Throughput(array, "samples", array, 100.0, 5, 90)]
        )
        Measurements(history).keep(array, Engaged(1))
    history.forget(12)
    assert (history.totals(12, NOW_S), Measurements(history).samples(12)) == (Totals(), None)
    assert Measurements(history).kept(12, Engaged) is None
    assert meet(history, 12, "0000000a", 200.0) is None
    assert meet(history, 13, "0000000a", 200.0) == "it fails"
    assert history.open_allocations() == {ElementId(13, 0): ("n1", 100.0)}
    assert [look.array for look in Measurements(history).throughputs(Job("alice", "digits"))] == [
        13
    ]


def test_a_trainer_that_is_over_while_the_disk_is_full_is_over_for_good(path: Path) -> None:
    history = History(path)
    meet(history, 12, "0000000a", 100.0)
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")  # as good as a full disk: nothing can be written
        history.end(12, "it fails")
        assert meet(history, 12, "0000000a", 200.0) == "it fails"  # a controller that begins anew
        other.execute("ROLLBACK")
    history.close()
    assert meet(History(path), 12, "0000000a", 300.0) == "it fails"


def test_the_last_problems_are_kept(path: Path) -> None:
    history = History(path)
    for number in range(103):
        history.add_problem(float(number), lambda number=number: {"nodes": number})
    assert json.loads(past_problem(path, 1)) == {"nodes": 102}
    assert json.loads(past_problem(path, 100)) == {"nodes": 3}
    with pytest.raises(HistoryError, match="fewer than 101 problems"):
        past_problem(path, 101)


def test_a_problem_of_a_file_that_holds_none_is_refused(path: Path) -> None:
    for content in (b"no database", b""):
        path.write_bytes(content)
        with pytest.raises(HistoryError, match=str(path)):
            past_problem(path, 1)


def test_ordinary_jobs_that_preempted_are_counted_and_so_are_those_that_missed_a_pass() -> None:
    history = History(":memory:")
    history.add_delays([Delay(1000.0, 2, 0.5), Delay(1000.0, 1, 30.0)])
    counts = history.counts
    assert (counts.delays.count, counts.preempted_elements, counts.late_jobs) == (2, 3, 1)


def test_of_a_trainers_pauses_the_newest_500_are_kept(path: Path) -> None:
    history = History(path)
    history.meet(trainer(), NOW_S)
    for number in range(510):
        Measurements(history).add_pause(Job("alice", "digits"), ARRAY, NOW_S + number, 2, 1.0, None)
        Measurements(history).add_pause(Job("alice", "digits"), 13, NOW_S + number, 2, 1.0, None)
    found = read_history(path, str(ARRAY), 0.0, NOW_S, None, private=False)["trainer"]
    assert [one["time_s"] - NOW_S for one in found["rescales"]] == list(range(10, 510))


def test_what_is_written_together_is_one_transaction_and_read_at_once(path: Path) -> None:
    history, other = History(path), History(path)
    with history.together():
        history.begin_allocation(FIRST, "n1", 100.0)
        assert other.open_allocations() == {}
        assert history.open_allocations() == {FIRST: ("n1", 100.0)}
        history.begin_allocation(SECOND, "n2", 100.0)
    assert other.open_allocations() == {FIRST: ("n1", 100.0), SECOND: ("n2", 100.0)}


def test_what_the_next_controller_must_know_does_not_wait_for_the_end_of_a_turn(path: Path) -> None:
    history, other = History(path), History(path)
    with history.together():
        meet(history, 12, "id", 1.0)
        Measurements(history).keep(12, Engaged(1))
        history.flush()
        assert Measurements(other).kept(12, Engaged) == Engaged(1)
        history.end(12, "finished")
        assert meet(other, 12, "id", 3.0) == "finished"


def test_a_turn_that_fails_loses_nothing(path: Path) -> None:
    history = History(path)
    with pytest.raises(ZeroDivisionError), history.together():
        history.begin_allocation(FIRST, "n1", 100.0)
        1 / 0  # noqa: B018
    assert History(path).open_allocations() == {FIRST: ("n1", 100.0)}


def test_a_history_on_a_file_server_is_written_without_a_log_and_read_beside(path: Path) -> None:
    history = History(path, remote=True)
    history.begin_allocation(FIRST, "n1", 100.0)
    assert [one.name for one in path.parent.glob("history*")] == [path.name, f"{path.name}-journal"]
    with reading(path, 1.0) as database:
        history.begin_allocation(SECOND, "n2", 100.0)
        assert database.execute("SELECT count(*) FROM allocations").fetchall() == [(2,)]


def test_a_history_of_one_host_is_used_on_a_file_server(path: Path) -> None:
    alone = History(path)
    alone.begin_allocation(FIRST, "n1", 100.0)
    alone.close()
    assert History(path, remote=True).open_allocations() == {FIRST: ("n1", 100.0)}


def test_the_next_controller_knows_whose_trainers_it_has_met_and_their_records(path: Path) -> None:
    before = History(path)
    for one in (trainer(), trainer(array=13)):
        before.meet(one, 2.0)
    before.end(13, "finished")
    before.close()
    one = trainer()
    assert History(path).records() == {12: (one.user, one.record, 2.0)}
