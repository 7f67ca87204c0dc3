"""The controller as a process that nothing stops: whatever its turns, statuses and clocks do."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from bftrainer_slurm.controller import turns as turns_module
from bftrainer_slurm.controller.decide.decision import Decision
from bftrainer_slurm.controller.turns import RestartError, Turns, notify
from bftrainer_slurm.slurm.gateway import GatewayError, SlurmUnavailableError
from scripts.labcluster.waiting import wait_until
from tests.controller.fake_keeper import FakeFeed
from tests.controller.worlds import cases
from tests.reader.test_metrics import ABOUT


def fake(
    errors: Iterable[Exception | None] = (),
    trouble: str | None = None,
    status: Exception | None = None,
) -> Mock:
    """A controller that turns all the time; its turns raise these errors first, None: not one."""
    controller = Mock(looked=False, decision=Decision(trouble=trouble))
    controller.schedule.due_s.side_effect = time.time
    controller.schedule.is_due.return_value = True
    controller.turn.side_effect = itertools.chain(errors, itertools.repeat(None))
    trainers = [{"array": 7, "user": "alice"}]
    shown = lambda about: {"controller": dict(about), "trainers": trainers}  # noqa: E731
    controller.status.side_effect = status or shown
    return controller


class Working:
    """A daemon's work on a controller, in a thread of its own. ``ended_by`` is what ended it."""

    def __init__(self, controller: Mock) -> None:
        self.feed, self.stop = FakeFeed(), threading.Event()
        self.controller = controller
        self.ended_by: RestartError | None = None
        self.daemon = Turns(controller, self.feed, {})  # type: ignore[arg-type]
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.daemon.run(self.stop)
        except RestartError as error:
            self.ended_by = error

    def end(self) -> None:
        self.stop.set()
        self.thread.join(120)

    @property
    def turns(self) -> int:
        return int(self.controller.turn.call_count)

    def wait_for_turns(self, more_than: int) -> None:
        wait_until(lambda: self.turns > more_than)


Start = Callable[[Mock], Working]


@pytest.fixture
def working() -> Iterator[Start]:
    started: list[Working] = []

    def start(controller: Mock) -> Working:
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

    work = working(fake(errors()))
    shown = ("a turn failed: ZeroDivisionError: of this turn", 1)
    wait_until(lambda: (work.feed.last.get("error"), work.feed.last.get("failed_turns")) == shown)
    goes_on.set()
    wait_until(lambda: work.feed.last["error"] is None)
    assert work.feed.last["failed_turns"] == 1


def test_after_some_failures_in_a_row_the_process_ends_to_start_again(working: Start) -> None:
    work = working(fake([ERROR] * 9))
    work.thread.join(120)
    why = "5 turns failed in a row: ZeroDivisionError('of this turn')"
    assert (str(work.ended_by), work.turns, work.feed.last["error"]) == (why, 5, why)


def test_failures_with_good_turns_between_them_end_nothing(working: Start) -> None:
    work = working(fake(itertools.cycle([*[ERROR] * 4, None])))
    work.wait_for_turns(20)
    assert work.thread.is_alive()


NONSENSE, SILENCE = GatewayError("squeue: no such format"), SlurmUnavailableError("no answer")
NO_PLAN = "no plan: MemoryError"


@cases(
    "more, shown, failed",
    slurm_answers_nonsense=({"errors": itertools.repeat(NONSENSE)}, NONSENSE, True),
    it_does_not_answer=({"errors": itertools.repeat(SILENCE)}, SILENCE, False),
    a_turn_does_less_than_it_should=({"trouble": NO_PLAN}, NO_PLAN, False),
    no_status_can_be_made=({"status": ERROR}, f"no status: {ERROR}", False),
)  # fmt: skip
def test_it_is_shown_and_all_goes_on_where(
    working: Start, more: dict[str, Any], shown: object, failed: bool
) -> None:
    work = working(fake(**more))
    work.wait_for_turns(10)
    wait_until(lambda: work.feed.last.get("error") == str(shown))
    assert (work.feed.last["failed_turns"] > 0) is failed


def test_where_the_clock_is_set_the_process_ends_to_start_again(
    working: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = working(fake())
    work.wait_for_turns(0)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 3600)
    work.thread.join(120)
    assert str(work.ended_by) == work.feed.last["error"] == "the clock was set by -3600 s"


def test_it_hears_notes_until_its_next_turn_is_due(
    working: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = Mock(side_effect=FakeFeed().wait)
    monkeypatch.setattr(FakeFeed, "wait", lambda _, timeout_s: wait(timeout_s))
    controller = fake()
    controller.schedule.is_due.return_value = False
    controller.schedule.due_s.side_effect = lambda: time.time() + 1.0
    working(controller)
    wait_until(lambda: wait.call_count > 5)
    assert max(timeout_s for ((timeout_s,), _) in wait.call_args_list) <= 1.0


@pytest.mark.parametrize("keeper_tells_all", [True, False])
def test_the_first_turn_waits_for_all_that_the_keeper_remembers_but_not_for_ever(
    working: Start, monkeypatch: pytest.MonkeyPatch, keeper_tells_all: bool
) -> None:
    monkeypatch.setattr(turns_module, "_BACKLOG_S", 1000.0 if keeper_tells_all else 0.1)
    monkeypatch.setattr(FakeFeed, "caught_up", False)
    work = working(fake())
    if keeper_tells_all:
        wait_until(lambda: work.controller.take.call_count > 5)
        assert work.turns == 0
        work.feed.caught_up = True
    work.wait_for_turns(0)


def test_a_keeper_that_takes_no_status_ends_nothing(working: Start) -> None:
    refusals, work = [RuntimeError("of the publisher")] * 2, working(fake())
    answers = Mock(side_effect=itertools.chain(refusals, itertools.repeat(None)))
    work.feed.of.answers = answers
    wait_until(lambda: answers.call_count > 5)
    assert work.thread.is_alive()


def test_between_turns_the_status_is_published_too(
    working: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns_module, "PUBLISH_EVERY_S", 0.01)
    controller = fake()
    controller.schedule.is_due.side_effect = itertools.chain([True], itertools.repeat(False))
    work = working(controller)
    wait_until(lambda: len(work.feed.of.published) > 3)
    assert work.turns == 1


def test_it_tells_systemd_that_it_works_as_often_as_it_turns_and_then_that_it_ends(
    working: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(turns_module, "notify", told.append)
    work = working(fake([ERROR]))
    work.wait_for_turns(5)
    work.end()
    assert (told[0], told[-1]) == ("READY=1", "STOPPING=1")
    assert told[1:-1] == ["WATCHDOG=1"] * (len(told) - 2)
    assert len(told) - 2 >= work.turns
    assert work.feed.last["error"] == "stopped"


@pytest.mark.parametrize(("secret", "linked"), [("s", True), ("", False)])
def test_owners_are_told_where_the_page_shows_all_of_their_trainers(
    secret: str, linked: bool
) -> None:
    work = Turns(fake(), FakeFeed(), ABOUT, secret)  # type: ignore[arg-type]
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


@pytest.mark.parametrize("named", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "/nowhere/at/all"}])
def test_where_nobody_listens_nothing_happens(
    named: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", named)
    notify("READY=1")
