"""The history file: what it keeps and forgets; full, locked or damaged it raises and loses nothing.

What Slurm is asked is counted beside it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from bftrainer_slurm.controller.observe.reports import Work
from bftrainer_slurm.controller.state.history import History, HistoryError
from bftrainer_slurm.controller.state.measurements import Job, Measurements
from bftrainer_slurm.controller.state.schema import reading
from bftrainer_slurm.controller.state.statistics import Counts, Delay, Totals
from bftrainer_slurm.controller.state.stopwatch import Throughput
from bftrainer_slurm.keeper.messages import Engaged
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.reader.past import past_problem
from bftrainer_slurm.reader.stories import read_history
from bftrainer_slurm.slurm.gateway import Gateway, SlurmUnavailableError
from bftrainer_slurm.slurm.wrappers import metered
from tests.controller.made_up_slurm import MadeUpSlurm
from tests.controller.setting import Setting
from tests.controller.worlds import ARRAY, NOW_S, Clock, cases, trainer

YEAR_S = 365 * 86_400.0
FIRST, SECOND = ElementId(ARRAY, 0), ElementId(ARRAY, 1)
JOB = Job("alice", "digits")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def history(path: Path, clock: Clock) -> Iterator[History]:
    made = History(path, monotonic=clock)
    made.write(("CREATE TABLE rows (value INTEGER NOT NULL UNIQUE)", ()))
    yield made
    made.close()


@pytest.fixture
def other(path: Path, history: History) -> Iterator[sqlite3.Connection]:
    """Somebody who has locked the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection


def insert(history: History, *values: object) -> None:
    for value in values:
        history.write(("INSERT INTO rows VALUES (?)", (value,)))


def values(history: History) -> list[int]:
    return [row[0] for row in history.read("SELECT value FROM rows ORDER BY rowid")]


def meet(history: History, array: int, id_: str, time_s: float = NOW_S) -> str | None:
    """Meet a trainer with this id; return why it is over."""
    plain = trainer(array=array)
    return history.meet(replace(plain, record=replace(plain.record, id=id_)), time_s)[0]


def begun(path: Path | str = ":memory:", *elements: ElementId, remote: bool = False) -> History:
    """A file in which these elements have begun."""
    history = History(path, remote=remote)
    for one in elements or (FIRST,):
        history.begin_allocation(one, "n1", 100.0)
    return history


def running(path: Path) -> list[ElementId]:
    """The elements that run, as another one reads it."""
    with closing(History(path)) as other:
        return [*other.open_allocations()]


def test_what_could_not_be_written_is_written_later_in_its_order(
    history: History, clock: Clock, other: sqlite3.Connection
) -> None:
    insert(history, 1, 2, 3)
    assert "locked" in (history.trouble or "")
    other.execute("ROLLBACK")
    insert(history, 4)
    assert values(history) == []  # the clock stands still: it is left alone for a moment
    clock.now_s += 60
    insert(history, 5)
    assert (values(history), history.trouble) == ([1, 2, 3, 4, 5], None)


def test_what_waits_is_written_at_the_end(
    path: Path, history: History, other: sqlite3.Connection
) -> None:
    insert(history, 1)
    other.execute("ROLLBACK")
    history.close()
    assert values(History(path)) == [1]


def test_a_full_disk_is_survived(history: History, clock: Clock) -> None:
    ((pages,),) = history.read("PRAGMA page_count")
    history.read(f"PRAGMA max_page_count={pages}")
    for value in range(5000):
        insert(history, value)
        clock.now_s += 60 if value % 1000 == 0 else 0
    assert "full" in (history.trouble or "")
    history.read("PRAGMA max_page_count=100000")
    clock.now_s += 60
    insert(history, 5000)
    assert (values(history), history.trouble) == (list(range(5001)), None)


def test_a_row_that_can_never_be_written_does_not_hold_up_the_others(history: History) -> None:
    insert(history, 1, 1, None, 2**70, "\ud800", 2)
    assert (values(history), history.trouble) == ([1, 2], None)


def test_what_cannot_be_read_is_empty_and_said(history: History) -> None:
    assert history.read("SELECT * FROM absent") == []
    assert "no such table" in (history.trouble or "")


def test_a_trainer_that_is_over_while_the_disk_is_full_is_over_for_good(
    path: Path, history: History, clock: Clock, other: sqlite3.Connection
) -> None:
    meet(history, 12, "0000000a")
    history.end(12, "it fails")
    history.forget_old(NOW_S)
    assert meet(history, 12, "0000000a") == "it fails"  # a controller that begins anew
    other.execute("ROLLBACK")
    clock.now_s += 60
    history.forget_old(NOW_S)
    assert not history._ended, "the memory has nothing of a trainer that is gone"
    assert meet(History(path), 12, "0000000a") == "it fails"


def test_what_is_old_is_forgotten_but_not_what_still_runs() -> None:
    history = begun(":memory:", FIRST, SECOND)
    history.end_allocation(FIRST, 110.0, "ended")
    history.forget_old(1e9)
    assert history.totals(ARRAY, NOW_S).grew == 1
    assert history.open_allocations() == {SECOND: ("n1", 100.0)}


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
    measurements = Measurements(History(":memory:", lambda: NOW_S))
    measurements.add_progress(ARRAY, NOW_S + YEAR_S, 7.0)
    measurements.add_progress(ARRAY, NOW_S, 3.0)
    measurements.keep(ARRAY, Work(NOW_S - 60, NOW_S + YEAR_S, trained_s=50.0))
    assert measurements.samples(ARRAY) == (3.0, NOW_S)
    assert measurements.work(ARRAY) == Work(NOW_S - 60, NOW_S, trained_s=50.0)


NONSENSE = b"not a database, whatever it is called" * 100


@cases(
    "damage",
    nothing_but_nonsense=lambda _: NONSENSE,
    cut_in_half=lambda content: content[: len(content) // 2],
    damaged_pages=lambda content: content[:4096] + b"\x55" * (len(content) - 4096),
    no_tables_by_its_version=lambda content: content[:60] + bytes(4) + content[64:],
)
def test_a_damaged_file_is_set_aside_and_a_new_one_begins(
    path: Path, damage: Callable[[bytes], bytes]
) -> None:
    begun(path).close()
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    begun(path, SECOND).close()
    assert path.with_suffix(".sqlite.damaged").read_bytes() == damaged
    assert running(path) == [SECOND]


def test_only_the_last_damaged_file_is_kept(path: Path) -> None:
    path.with_name("history.sqlite.damaged-wal").touch()  # another one's
    for _ in range(3):
        path.write_bytes(NONSENSE)
        History(path).close()
    left = {one.name for one in path.parent.iterdir()}
    assert left == {"history.sqlite", "history.sqlite.damaged"}


def test_a_file_that_cannot_be_opened_or_is_of_another_version_is_refused_with_a_remedy(
    tmp_path: Path, path: Path
) -> None:
    with pytest.raises(HistoryError, match="move it away"):
        History(tmp_path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version=99")
    with pytest.raises(HistoryError, match=r"another version \(99\); move it away"):
        History(path)


def learnt_of_two(history: History) -> Measurements:
    """Two trainers with all that can be known of them."""
    measurements = Measurements(history)
    for array in (12, 13):
        history.begin_allocation(ElementId(array, 0), "n1", 100.0)
        measurements.add_progress(array, 100.0, 5.0)
        measurements.add_pause(JOB, array, 100.0, 2, 1.0, None)
        measurements.set_curve(JOB, [Throughput(array, "samples", array, 100.0, 5, 90)])
        measurements.keep(array, Engaged(1))
        meet(history, array, "0000000a")
        history.end(array, "it fails")
    return measurements


@pytest.mark.parametrize("meets", [True, False])
def test_all_that_is_known_under_an_id_is_forgotten_and_of_others_nothing(
    path: Path, meets: bool
) -> None:
    """On demand, and as another trainer is met under the same array id."""
    history = History(path)
    measurements = learnt_of_two(history)
    if not meets:
        history.forget(12)
    assert meet(history, 12, "0000000b") is None
    assert (history.totals(12, NOW_S), measurements.samples(12)) == (Totals(), None)
    assert measurements.kept(12, Engaged) is None
    anew = read_history(path, "12", 0.0, NOW_S, None, private=False)["trainer"]
    assert (anew["over"], anew["rescales"], anew["total"]["grew"]) == (None, [], 0)
    assert meet(history, 13, "0000000a") == "it fails"
    assert history.open_allocations() == {ElementId(13, 0): ("n1", 100.0)}
    assert [look.array for look in measurements.throughputs(JOB)] == [13]


@pytest.mark.parametrize(("before", "now"), [("", "0000000a"), ("0000000a", ""), ("", "")])
def test_trainers_that_carry_no_id_look_all_alike(before: str, now: str) -> None:
    history = History(":memory:")
    meet(history, 12, before)
    history.end(12, "it fails")
    assert meet(history, 12, now) == "it fails"


def test_the_last_problems_are_kept(path: Path) -> None:
    history = History(path)
    for number in range(103):
        history.add_problem(float(number), lambda number=number: {"nodes": number})
    assert json.loads(past_problem(path, 1)) == {"nodes": 102}
    assert json.loads(past_problem(path, 100)) == {"nodes": 3}
    with pytest.raises(HistoryError, match="fewer than 101 problems"):
        past_problem(path, 101)


@pytest.mark.parametrize("content", [b"no database", b""])
def test_a_problem_of_a_file_that_holds_none_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(HistoryError, match=str(path)):
        past_problem(path, 1)


def test_of_a_trainers_pauses_the_newest_500_are_kept(path: Path) -> None:
    history = History(path)
    history.meet(trainer(), NOW_S)
    for number in range(510):
        for array in (ARRAY, 13):
            Measurements(history).add_pause(JOB, array, NOW_S + number, 2, 1.0, None)
    found = read_history(path, str(ARRAY), 0.0, NOW_S, None, private=False)["trainer"]
    assert [one["time_s"] - NOW_S for one in found["rescales"]] == list(range(10, 510))


def test_what_is_written_together_is_one_transaction_and_read_at_once(path: Path) -> None:
    history = History(path)
    with pytest.raises(ZeroDivisionError), history.together():
        history.begin_allocation(FIRST, "n1", 100.0)
        assert running(path) == []
        assert history.open_allocations() == {FIRST: ("n1", 100.0)}
        history.begin_allocation(SECOND, "n2", 100.0)
        1 / 0  # noqa: B018
    assert running(path) == [FIRST, SECOND], "a turn that fails loses nothing"


def test_what_the_next_controller_must_know_does_not_wait_for_the_end_of_a_turn(path: Path) -> None:
    history, other = History(path), History(path)
    with history.together():
        meet(history, 12, "id")
        Measurements(history).keep(12, Engaged(1))
        history.flush()
        assert Measurements(other).kept(12, Engaged) == Engaged(1)
        history.end(12, "finished")
        assert meet(other, 12, "id") == "finished"


def test_a_history_goes_on_on_a_file_server_without_a_log_and_is_read_beside(path: Path) -> None:
    begun(path).close()
    history = begun(path, SECOND, remote=True)
    assert [one.name for one in path.parent.glob("history*")] == [path.name, f"{path.name}-journal"]
    with reading(path, 1.0) as database:
        history.begin_allocation(ElementId(13, 0), "n1", 100.0)
        assert database.execute("SELECT count(*) FROM allocations").fetchall() == [(3,)]


def test_the_next_controller_knows_whose_trainers_it_has_met_and_their_records(path: Path) -> None:
    before, one = History(path), trainer()
    for met in (one, trainer(array=13)):
        before.meet(met, 2.0)
    before.end(13, "finished")
    before.close()
    assert History(path).records() == {12: (one.user, one.record, 2.0)}


def test_ordinary_jobs_that_preempted_are_counted_and_known_to_the_next_controller(
    path: Path,
) -> None:
    history = History(path)
    seen = [Delay(1000.0, 2, 0.5), Delay(1100.0, 1, 30.0)]
    history.add_delays(seen)
    counts = history.counts
    assert (counts.delays.count, counts.preempted_elements, counts.late_jobs) == (2, 3, 1)
    assert (History(path).delays(1000.0), History(path).delays(1050.0)) == (seen, seen[1:])


def test_answers_and_errors_of_slurm_pass_through_and_are_counted_by_method() -> None:
    counts, of = Counts(), MadeUpSlurm(NOW_S, ["n1"])
    gateway = metered(cast(Gateway, of), counts.note_request)
    assert gateway.queue() == of.queue()
    of.away = True
    with pytest.raises(SlurmUnavailableError):
        gateway.queue()
    assert gateway.name == "made up"
    assert {name: one.count for name, one in counts.requests.items()} == {"queue": 2}
    assert counts.failed_requests == {"queue": 1}
