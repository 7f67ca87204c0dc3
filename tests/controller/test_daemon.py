"""The controller as a process that nothing stops: whatever its turns, statuses and clocks do."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bftrainer_slurm.controller import turns as turns_module
from bftrainer_slurm.controller.decide.decision import Decision
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.turns import RestartError, notify
from bftrainer_slurm.keeper.client import KeeperError
from bftrainer_slurm.keeper.protocol import NumberedNote
from bftrainer_slurm.slurm.gateway import GatewayError, SlurmUnavailableError
from scripts.labcluster.waiting import wait_until
from tests.controller.fake_keeper import FakeFeed
from tests.reader.test_metrics import ABOUT


@dataclass
class FakeController:
    """Turns all the time. ``turning`` and ``showing`` are what a turn and a status do."""

    turning: Callable[[], None] = lambda: None
    showing: Callable[[], None] = lambda: None
    turns: int = 0
    takes: int = 0
    looked: bool = False
    decision: Decision = field(default_factory=Decision)
    schedule: Any = field(init=False)

    def __post_init__(self) -> None:
        self.schedule = self

    def due_s(self) -> float:
        return time.time()

    def is_due(self, now_s: float) -> bool:
        return True

    def take(self, notes: Iterable[NumberedNote]) -> None:
        self.takes += 1

    def introduce(self) -> None:
        pass

    def turn(self) -> None:
        self.turns += 1
        self.looked = True
        self.turning()

    def status(self, controller: dict[str, Any]) -> dict[str, Any]:
        self.showing()
        return {"controller": dict(controller)}


class Working:
    """A daemon's work on a controller, in a thread of its own. ``ended_by`` is what ended it."""

    def __init__(self, controller: FakeController) -> None:
        self.feed, self.stop = FakeFeed(), threading.Event()
        self.controller = controller
        self.ended_by: RestartError | None = None
        self.turns = turns_module.Turns(controller, self.feed, {})  # type: ignore[arg-type]
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.turns.run(self.stop)
        except RestartError as error:
            self.ended_by = error

    def end(self) -> None:
        self.stop.set()
        self.thread.join(120)


Start = Callable[[FakeController], Working]


@pytest.fixture
def working() -> Iterator[Start]:
    started: list[Working] = []

    def start(controller: FakeController) -> Working:
        started.append(Working(controller))
        started[-1].thread.start()
        return started[-1]

    yield start
    for one in started:
        one.end()


def failing_with(errors: Iterable[Exception]) -> Callable[[], None]:
    """What raises these, one after the other, and then nothing more."""
    left = iter(errors)

    def turning() -> None:
        for error in left:
            raise error

    return turning


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What systemd is told."""
    said: list[str] = []
    monkeypatch.setattr(turns_module, "notify", said.append)
    return said


def test_a_turn_that_fails_is_counted_shown_and_tried_again(working: Start) -> None:
    failing = threading.Event()

    def turning() -> None:
        if not failing.is_set():
            raise ZeroDivisionError("of this turn")

    work = working(FakeController(turning))
    wait_until(lambda: work.feed.last.get("failed_turns", 0) > 0)
    assert work.feed.last["error"] == "a turn failed: ZeroDivisionError: of this turn"
    failing.set()
    wait_until(lambda: work.feed.last["error"] is None)
    assert work.feed.last["failed_turns"] > 0


def test_after_some_failures_in_a_row_the_process_ends_to_start_again(working: Start) -> None:
    work = working(FakeController(failing_with([ZeroDivisionError("of this turn")] * 9)))
    work.thread.join(120)
    why = "5 turns failed in a row: ZeroDivisionError('of this turn')"
    assert (str(work.ended_by), work.controller.turns, work.feed.last["error"]) == (why, 5, why)


def test_failures_with_good_turns_between_them_end_nothing(working: Start) -> None:
    turns = itertools.count(1)

    def turning() -> None:
        if next(turns) % 5:
            raise ZeroDivisionError

    work = working(FakeController(turning))
    wait_until(lambda: work.controller.turns > 20)
    assert work.thread.is_alive()


def test_a_slurm_that_answers_nonsense_is_counted_and_asked_again(working: Start) -> None:
    turning = failing_with(itertools.repeat(GatewayError("squeue: no such format")))
    work = working(FakeController(turning))
    wait_until(lambda: work.controller.turns > 10)
    assert work.feed.last["failed_turns"] > 2
    assert work.feed.last["error"] == "squeue: no such format"


def test_where_the_clock_is_set_the_process_ends_to_start_again(
    working: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = working(FakeController())
    wait_until(lambda: work.controller.turns > 0)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 3600)
    work.thread.join(120)
    assert str(work.ended_by) == work.feed.last["error"] == "the clock was set by -3600 s"


def test_the_first_turn_waits_until_all_that_the_keeper_remembers_is_read(
    working: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns_module, "_BACKLOG_S", 1000.0)
    monkeypatch.setattr(FakeFeed, "caught_up", False)
    work = working(FakeController())
    wait_until(lambda: work.controller.takes > 5)
    assert work.controller.turns == 0
    work.feed.caught_up = True
    wait_until(lambda: work.controller.turns > 0)


@pytest.mark.parametrize("error", [KeeperError("no answer"), RuntimeError("of the publisher")])
def test_a_keeper_that_takes_no_status_ends_nothing(working: Start, error: Exception) -> None:
    refused = threading.Event()

    def answers() -> None:
        if not refused.is_set():
            refused.set()
            raise error

    controller = FakeController()
    work = Working(controller)
    work.feed.of.answers = answers
    work.thread.start()
    wait_until(lambda: bool(work.feed.of.published))
    work.end()


class Idle(FakeController):
    """Its first turn is its last for now."""

    def is_due(self, now_s: float) -> bool:
        return self.turns == 0


def test_between_turns_the_status_is_published_too(
    working: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns_module, "PUBLISH_EVERY_S", 0.01)
    work = working(Idle())
    wait_until(lambda: len(work.feed.of.published) > 3)
    assert work.controller.turns == 1


def test_a_keeper_that_tells_nothing_does_not_hold_up_the_first_turn_for_ever(
    working: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns_module, "_BACKLOG_S", 0.1)
    monkeypatch.setattr(FakeFeed, "caught_up", False, raising=False)
    work = working(FakeController())
    wait_until(lambda: work.controller.turns > 0)


def test_a_slurm_that_does_not_answer_is_no_failure_of_ours(working: Start) -> None:
    turning = failing_with(itertools.repeat(SlurmUnavailableError("no answer")))
    work = working(FakeController(turning))
    wait_until(lambda: work.controller.turns > 10 and bool(work.feed.of.published))
    assert (work.feed.last["error"], work.feed.last["failed_turns"]) == ("no answer", 0)


def test_it_tells_systemd_that_it_works_as_often_as_it_turns_and_then_that_it_ends(
    working: Start, told: list[str]
) -> None:
    turns = 0

    def turning() -> None:
        nonlocal turns
        turns += 1
        if turns == 2:
            raise ZeroDivisionError

    work = working(FakeController(turning))
    wait_until(lambda: turns > 5)
    work.end()
    assert (told[0], told[-1]) == ("READY=1", "STOPPING=1")
    assert told[1:-1] == ["WATCHDOG=1"] * (len(told) - 2)
    assert len(told) - 2 >= turns


def test_a_turn_that_hangs_is_not_said_to_work(working: Start, told: list[str]) -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    def turning() -> None:
        hangs.set()
        goes_on.wait(120)

    working(FakeController(turning))
    assert hangs.wait(120)
    said = list(told)
    time.sleep(0.2)
    assert told == said
    goes_on.set()


def test_why_a_turn_did_less_than_it_should_is_shown(working: Start) -> None:
    work = working(FakeController(decision=Decision(trouble="no plan: MemoryError")))
    wait_until(lambda: work.feed.last.get("error") == "no plan: MemoryError")


def test_a_status_that_cannot_be_made_ends_nothing(working: Start) -> None:
    showing = failing_with([KeyError("of the status")])
    work = working(FakeController(showing=showing))
    wait_until(lambda: bool(work.feed.of.published))


def test_its_last_word_is_that_it_has_stopped(working: Start) -> None:
    work = working(FakeController())
    wait_until(lambda: bool(work.feed.of.published))
    work.end()
    assert work.feed.last["error"] == "stopped"


@pytest.mark.parametrize(
    ("setting", "address"), [("", "127.0.0.1:6741"), ("off", None), ("ctl:9999", "ctl:9999")]
)
def test_a_sites_page_is_where_the_settings_say(setting: str, address: str | None) -> None:
    assert Settings(metrics=setting).page == address


@pytest.mark.parametrize(("secret", "linked"), [("s", True), ("", False)])
def test_owners_are_told_where_the_page_shows_all_of_their_trainers(
    secret: str, linked: bool
) -> None:
    class WithTrainer(FakeController):
        def status(self, controller: dict[str, Any]) -> dict[str, Any]:
            return super().status(controller) | {"trainers": [{"array": 7, "user": "alice"}]}

    work = turns_module.Turns(WithTrainer(), FakeFeed(), ABOUT, secret)  # type: ignore[arg-type]
    work.about["metrics"] = "h:1"
    (one,) = work.status()["trainers"]
    assert one.get("page", "").startswith("http://h:1/#trainer=7&key=alice.") is linked


@pytest.fixture(params=["in a folder", "abstract"])
def systemd(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[socket.socket]:
    """The socket that systemd listens on."""
    address = f"@bftrainer-{os.getpid()}" if request.param == "abstract" else f"{tmp_path}/notify"
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(120)
        listening.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        yield listening


def test_a_state_arrives_where_systemd_listens(systemd: socket.socket) -> None:
    notify("READY=1")
    notify("WATCHDOG=1")
    assert [systemd.recv(100) for _ in range(2)] == [b"READY=1", b"WATCHDOG=1"]


@pytest.mark.parametrize("address", [None, "", "/nowhere/at/all"])
def test_where_nobody_listens_nothing_happens(
    address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if address is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify("READY=1")
