"""What the controller of one host leaves to that of another, and what it does without the lease."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from bftrainer_slurm.controller import leadership
from bftrainer_slurm.controller.leadership import SharedHistory, take_the_lead
from bftrainer_slurm.controller.observe.reports import Reform
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.measurements import Job, Measurements
from bftrainer_slurm.controller.state.stopwatch import Throughput
from bftrainer_slurm.keeper.home import StateError
from bftrainer_slurm.keeper.lease import ROUND_S, SETTLE_S, VALID_S, Lease
from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.slurm.detour import Detour
from bftrainer_slurm.slurm.gateway import Gateway, SlurmUnavailableError
from bftrainer_slurm.slurm.wrappers import leader_only
from scripts.labcluster.waiting import wait_until
from tests.controller.setting import Setting
from tests.controller.worlds import ARRAY, element

WORD = "controller.json"
Hosts = tuple[Path, Path, Path]


class Asked:
    """Stands in for Slurm: notes what it is asked."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *words: self.requests.append(" ".join(map(str, (name, *words))))


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    """The states of two hosts, and what they share."""
    folders = tmp_path / "a", tmp_path / "b", tmp_path / "shared"
    for folder in folders:
        folder.mkdir()
    return folders


@contextmanager
def leading(state: Path, shared: Path) -> Iterator[SharedHistory]:
    """The history of a host while it works; in the end it has told the others."""
    history = SharedHistory(state, shared)
    try:
        yield history
    finally:
        history.close()


@pytest.fixture
def no_minute_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shared now and then is not shared again."""
    monkeypatch.setattr(leadership, "_SHARE_EVERY_S", 1e6)


@pytest.mark.usefixtures("no_minute_passes")
def test_the_others_hear_of_it_while_the_host_works(hosts: Hosts) -> None:
    a, _, shared = hosts
    with leading(a, shared) as first:
        first.meet(7, "id", 1.0)
        wait_until((shared / WORD).exists)
        first.end(7, "given up")
        wait_until(lambda: "given up" in (shared / WORD).read_text())


@pytest.mark.usefixtures("no_minute_passes")
def test_they_hear_at_once_who_is_asked_to_leave_and_who_was_not_after_all(hosts: Hosts) -> None:
    a, b, shared = hosts
    there = [
        element(3, "running n1", array=7, start_s=1.0),
        element(4, "running n2", array=7, start_s=1.0),
    ]
    with leading(a, shared) as first:
        wait_until((shared / WORD).exists)
        first.ask(there, 2.0)
        wait_until(lambda: "n1" in (shared / WORD).read_text())
        first.unask([there[0].id])
        wait_until(lambda: "n1" not in (shared / WORD).read_text())
        with leading(b, shared) as second:
            assert second.asked(7) == {(4, "n2", 1.0)}


def test_another_trainer_of_the_same_number_is_not(hosts: Hosts) -> None:
    a, b, shared = hosts
    with leading(a, shared) as first:
        first.meet(7, "id", 1.0)
        Measurements(first).add_throughput(JOB, LOOK)
        first.end(7, "given up")
    with leading(b, shared) as second:
        assert second.meet(7, "another", 2.0) is None
        assert not Measurements(second).has_trained(7)
    with leading(a, shared) as first:
        assert first.meet(7, "another", 3.0) is None
        assert not Measurements(first).has_trained(7)


def test_a_host_that_works_again_has_what_it_knew_and_what_came_since(hosts: Hosts) -> None:
    a, b, shared = hosts
    for state, array in ((a, 7), (b, 8), (a, 9)):
        with leading(state, shared) as history:
            history.meet(array, "id", 1.0)
            history.end(array, "finished")
    with leading(a, shared) as history:
        assert [history.meet(array, "id", 2.0) for array in (7, 8, 9)] == ["finished"] * 3


def test_what_is_over_is_so_on_each_host_also_where_its_history_was_lost(
    hosts: Hosts,
) -> None:
    a, b, shared = hosts
    with leading(a, shared) as first:
        first.meet(7, "id", 1.0)
        first.meet(8, "id", 1.0)
        first.end(7, "given up")
    (a / "history.sqlite").write_bytes(b"no database" * 1000)
    for state in (a, b):
        with leading(state, shared) as history:
            assert history.meet(7, "id", 2.0) == "given up"
            assert history.meet(8, "id", 2.0) is None


def test_what_others_have_left_stays_while_this_hosts_disk_is_full(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, shared = hosts
    with leading(a, shared) as first:
        first.meet(7, "id", 1.0)
        first.end(7, "given up")
    with monkeypatch.context() as patch:
        patch.setattr(History, "_write_waiting", full_disk)
        with leading(b, shared) as second:
            assert second.trouble is not None
    with leading(b, shared) as second:
        assert second.meet(7, "id", 2.0) == "given up"


def full_disk(history: History) -> None:
    raise sqlite3.OperationalError("database or disk is full")


def test_what_one_host_has_measured_last_the_other_knows(hosts: Hosts) -> None:
    a, b, shared = hosts
    with leading(a, shared) as first:
        tell_all(first)
        before = known(first)
    assert before != known(History(":memory:"))
    for state in (b, a, b):
        with leading(state, shared) as history:
            assert known(history) == before


JOB, NOW_S = Job("alice", "digits"), 1e9
LOOK = Throughput(7, "samples", 2, NOW_S, 50.0, 20.0)


def tell_all(history: History) -> None:
    history.meet(7, "id", NOW_S)
    history.begin_allocation(ElementId(7, 0), "n1", NOW_S)
    Measurements(history).add_throughput(JOB, LOOK)
    Measurements(history).set_reform(7, Reform(NOW_S, 3, 2))


def known(history: History) -> tuple[object, ...]:
    measurements = Measurements(history)
    about = measurements.throughputs(JOB), measurements.reform(7)
    return *about, Measurements(history).has_trained(7), history.has_begun(7)


def test_a_folder_that_does_not_answer_holds_nothing_up(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _, shared = hosts
    answers, here = threading.Event(), threading.current_thread()

    def answer(_: int) -> None:
        assert threading.current_thread() is here or answers.wait(120)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", answer)
        with leading(a, shared) as first:
            for array in range(3):
                first.meet(array, "id", 1.0)
                first.end(array, "finished")
            assert not (shared / WORD).exists()
            answers.set()
    assert (shared / WORD).exists()


def test_a_trainer_that_has_trained_on_the_first_host_outlives_failures_on_the_second(
    hosts: Hosts,
) -> None:
    a, b, shared = hosts
    with leading(a, shared) as first:
        before = Setting(2, ARRAY, history=first)
        before.settle()
        before.say(NoteKind.REFORMED, generation=1, nodes=2)
        before.train(120)
        measured = before.shown()["curve"]
    with leading(b, shared) as second:
        after = Setting(2, ARRAY, history=second)
        after.now_s = before.now_s
        after.slurm.enter_(*before.slurm.queue().trainers)
        after.turn()
        assert after.shown()["curve"] == measured
        for node in ("n1", "n2", "n1"):
            after.say(NoteKind.FAILED, node, "the file system is away")
            after.turn()
        assert after.shown()["state"] != "given up"


def test_after_others_nothing_is_taken_to_run_that_ran_when_this_host_worked(hosts: Hosts) -> None:
    a, b, shared = hosts
    with leading(a, shared) as first:
        first.begin_allocation(ElementId(7, 0), "n1", 1.0)
    with leading(b, shared):
        pass
    with leading(a, shared) as first:
        assert first.open_allocations() == {}


def test_a_controller_that_was_started_again_knows_what_ran(hosts: Hosts) -> None:
    a, _, shared = hosts
    with leading(a, shared) as first:
        first.begin_allocation(ElementId(7, 0), "n1", 1.0)
    with leading(a, shared) as first:
        assert first.open_allocations() == {ElementId(7, 0): "n1"}


NO_WORDS = [
    b"",
    b"{",
    b"[]",
    b"7",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"host": "a"}',
    b'{"host": "a", "rows": 7}',
    b'{"host": "a", "rows": {"trainers": [[1]]}}',
    b'{"host": "a", "rows": {"trainers": 7, "looks": [], "rescales": [], "reforms": []}}',
]


@pytest.mark.parametrize("word", NO_WORDS, ids=lambda word: ascii(word[:60]))
def test_word_that_makes_no_sense_is_passed_over(hosts: Hosts, word: bytes) -> None:
    a, b, shared = hosts
    (shared / WORD).write_bytes(word)
    with leading(a, shared) as history:
        tell_all(history)
    with leading(b, shared) as history:
        assert Measurements(history).has_trained(7)


def test_of_rows_of_another_version_is_said_how_many_are_left_out(
    hosts: Hosts, caplog: pytest.LogCaptureFixture
) -> None:
    a, _, shared = hosts
    rows = {"trainers": [[7, "id", 5.0, "given up", 1], [8, "id", 5.0]], "more": [[1]]}
    (shared / WORD).write_text(json.dumps({"host": "b", "rows": rows}))
    with leading(a, shared) as history:
        assert history.meet(7, "id", 6.0) == "given up"
    message = f"{shared / WORD}: invalid rows skipped: 1; is it of another version?"
    assert caplog.messages == [message]


def test_a_controller_does_not_begin_without_the_shared_folder(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="correct --shared"):
        take_the_lead(tmp_path / "wrong", tmp_path, cast(Gateway, Asked()))
    assert not (tmp_path / "wrong").exists()


def test_without_the_lease_slurm_is_asked_but_nothing_is_changed(tmp_path: Path) -> None:
    now_s = 0.0
    lease = Lease(tmp_path / "lease", "a", lambda: now_s)
    lease.round()
    slurm = Asked()
    gateway = leader_only(cast(Gateway, slurm), lease.holds, Detour(tmp_path / "detour"))
    with pytest.raises(SlurmUnavailableError):
        gateway.cancel(7)
    while now_s < SETTLE_S + ROUND_S:
        now_s += ROUND_S
        lease.round()
    gateway.cancel(7)
    now_s += VALID_S
    asks = gateway.nodes, gateway.queue, gateway.reservations, gateway.last_pass
    for ask in asks:
        ask()
    gateway.configuration("bftrainer")
    with pytest.raises(SlurmUnavailableError):
        gateway.cancel(8)
    looks = ["nodes", "queue", "reservations", "last_pass", "configuration bftrainer"]
    assert slurm.requests == ["cancel 7", *looks]
