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
from bftrainer_slurm.controller.turns import RestartError, Turns, notify
from bftrainer_slurm.keeper.protocol import NumberedNote
from bftrainer_slurm.slurm.gateway import GatewayError, SlurmUnavailableError
from scripts.labcluster.waiting import wait_until
from tests.controller.fake_keeper import FakeFeed
from tests.reader.test_metrics import ABOUT


@dataclass
class FakeController:
    """Turns all the time, ``most`` times. What ``errors`` have, turns raise first, one after the
    other; ``showing`` is what a status does.
    """

    errors: Iterable[Exception] = ()
    showing: Callable[[], object] = lambda: None
    most: float = float("inf")
    turns: int = 0
    takes: int = 0
    looked: bool = False
    decision: Decision = field(default_factory=Decision)
    schedule: Any = field(init=False)

    def __post_init__(self) -> None:
        self.schedule, self.errors = self, iter(self.errors)

    def due_s(self) -> float:
        return time.time()

    def is_due(self, now_s: float) -> bool:
        return self.turns < self.most

    def take(self, notes: Iterable[NumberedNote]) -> None:
        self.takes += 1

    def introduce(self) -> None:
        pass

    def turn(self) -> None:
        self.turns += 1
        self.looked = True
        for error in self.errors:
            raise error

    def status(self, controller: dict[str, Any]) -> dict[str, Any]:
        self.showing()
        trainers = [{"array": 7, "user": "alice"}]
        return {"controller": dict(controller), "trainers": trainers}


class Working:
    """A daemon's work on a controller, in a thread of its own. ``ended_by`` is what ended it."""

    def __init__(self, controller: FakeController) -> None:
        self.feed, self.stop = FakeFeed(), threading.Event()
        self.controller = controller
        self.ended_by: RestartError | None = None
        self.turns = Turns(controller, self.feed, {})  # type: ignore[arg-type]
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.turns.run(self.stop)
        except RestartError as error:
            self.ended_by = error

    def end(self) -> None:
        self.stop.set()
        self.thread.join(120)

    def wait_for_turns(self, more_than: int) -> None:
        wait_until(lambda: self.controller.turns > more_than)


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


ERROR = ZeroDivisionError("of this turn")


def test_a_turn_that_fails_is_counted_shown_and_tried_again(working: Start) -> None:
    goes_on = threading.Event()

    def errors() -> Iterator[Exception]:
        yield ERROR
        goes_on.wait(120)

    work = working(FakeController(errors()))
    shown = ("a turn failed: ZeroDivisionError: of this turn", 1)
    wait_until(lambda: (work.feed.last.get("error"), work.feed.last.get("failed_turns")) == shown)
    goes_on.set()
    wait_until(lambda: work.feed.last["error"] is None)
    assert work.feed.last["failed_turns"] == 1


def test_after_some_failures_in_a_row_the_process_ends_to_start_again(working: Start) -> None:
    work = working(FakeController([ERROR] * 9))
    work.thread.join(120)
    why = "5 turns failed in a row: ZeroDivisionError('of this turn')"
    assert (str(work.ended_by), work.controller.turns, work.feed.last["error"]) == (why, 5, why)


def test_failures_with_good_turns_between_them_end_nothing(
    working: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = itertools.count(1)

    def turn(controller: FakeController) -> None:
        controller.turns = next(turns)
        if controller.turns % 5:
            raise ERROR

    monkeypatch.setattr(FakeController, "turn", turn)
    work = working(FakeController())
    work.wait_for_turns(20)
    assert work.thread.is_alive()


@pytest.mark.parametrize(
    ("error", "counts"),
    [(GatewayError("squeue: no such format"), True), (SlurmUnavailableError("no answer"), False)],
    ids=["answers nonsense", "does not answer"],
)
def test_a_slurm_is_asked_again_that(working: Start, error: GatewayError, counts: bool) -> None:
    work = working(FakeController(itertools.repeat(error)))
    work.wait_for_turns(10)
    wait_until(lambda: work.feed.last.get("error") == str(error))
    assert (work.feed.last["failed_turns"] > 0) is counts


def test_where_the_clock_is_set_the_process_ends_to_start_again(
    working: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = working(FakeController())
    work.wait_for_turns(0)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 3600)
    work.thread.join(120)
    assert str(work.ended_by) == work.feed.last["error"] == "the clock was set by -3600 s"


@pytest.mark.parametrize("keeper_tells_all", [True, False])
def test_the_first_turn_waits_for_all_that_the_keeper_remembers_but_not_for_ever(
    working: Start, monkeypatch: pytest.MonkeyPatch, keeper_tells_all: bool
) -> None:
    monkeypatch.setattr(turns_module, "_BACKLOG_S", 1000.0 if keeper_tells_all else 0.1)
    monkeypatch.setattr(FakeFeed, "caught_up", False)
    work = working(FakeController())
    if keeper_tells_all:
        wait_until(lambda: work.controller.takes > 5)
        assert work.controller.turns == 0
        work.feed.caught_up = True
    work.wait_for_turns(0)


def test_a_keeper_that_takes_no_status_ends_nothing(working: Start) -> None:
    work, refusals = Working(FakeController()), iter([RuntimeError("of the publisher")])

    def answers() -> None:
        for refusal in refusals:
            raise refusal

    work.feed.of.answers = answers
    work.thread.start()
    wait_until(lambda: bool(work.feed.of.published))
    work.end()


def test_between_turns_the_status_is_published_too(
    working: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns_module, "PUBLISH_EVERY_S", 0.01)
    work = working(FakeController(most=1))
    wait_until(lambda: len(work.feed.of.published) > 3)
    assert work.controller.turns == 1


def test_it_tells_systemd_that_it_works_as_often_as_it_turns_and_then_that_it_ends(
    working: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(turns_module, "notify", told.append)
    work = working(FakeController([ERROR]))
    work.wait_for_turns(5)
    work.end()
    assert (told[0], told[-1]) == ("READY=1", "STOPPING=1")
    assert told[1:-1] == ["WATCHDOG=1"] * (len(told) - 2)
    assert len(told) - 2 >= work.controller.turns
    assert work.feed.last["error"] == "stopped"


def test_why_a_turn_did_less_than_it_should_is_shown(working: Start) -> None:
    work = working(FakeController(decision=Decision(trouble="no plan: MemoryError")))
    wait_until(lambda: work.feed.last.get("error") == "no plan: MemoryError")


def test_a_status_that_cannot_be_made_ends_nothing(working: Start) -> None:
    work = working(FakeController(showing=lambda: 1 / 0))
    wait_until(lambda: work.feed.last.get("error") == "no status: division by zero")


@pytest.mark.parametrize(("secret", "linked"), [("s", True), ("", False)])
def test_owners_are_told_where_the_page_shows_all_of_their_trainers(
    secret: str, linked: bool
) -> None:
    work = Turns(FakeController(), FakeFeed(), ABOUT, secret)  # type: ignore[arg-type]
    work.about["metrics"] = "h:1"
    (one,) = work.status()["trainers"]
    assert one.get("page", "").startswith("http://h:1/#trainer=7&key=alice.") is linked


@pytest.mark.parametrize("abstract", [False, True])
def test_a_state_arrives_where_systemd_listens(
    abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"@bftrainer-{os.getpid()}" if abstract else f"{tmp_path}/notify"
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(120)
        listening.bind(f"\0{address[1:]}" if abstract else address)
        notify("READY=1")
        notify("WATCHDOG=1")
        assert [listening.recv(100) for _ in range(2)] == [b"READY=1", b"WATCHDOG=1"]


@pytest.mark.parametrize("address", [None, "", "/nowhere/at/all"])
def test_where_nobody_listens_nothing_happens(
    address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if address is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify("READY=1")
