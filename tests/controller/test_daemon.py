"""The controller as a process that nothing stops: whatever its turns, statuses and clocks do."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from bftrainer_slurm.controller import turns as turns_module
from bftrainer_slurm.controller.decide.decision import Decision
from bftrainer_slurm.controller.settings import Settings, SettingsError
from bftrainer_slurm.controller.settings_file import LiveSettings
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

    def take_backoff(self, before: Any) -> None:
        pass

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
    """A daemon's work in a thread of its own, on controllers that are made as it asks for them."""

    def __init__(self, make: Callable[[], FakeController], configured: LiveSettings) -> None:
        self.feed, self.stop = FakeFeed(), threading.Event()
        self.configured = configured
        self.made: list[FakeController] = []
        self.make = make
        work = turns_module.Turns(self.another, self.feed, {}, configured)  # type: ignore[arg-type]
        self.thread = threading.Thread(target=lambda: work.run(self.stop), daemon=True)

    def another(self) -> Any:
        """Make a controller as the first one was made."""
        self.made.append(self.make())
        return self.made[-1]

    def end(self) -> None:
        self.stop.set()
        self.thread.join(120)


Start = Callable[..., Working]


@pytest.fixture
def working() -> Iterator[Start]:
    started: list[Working] = []

    def start(
        make: Callable[[], FakeController], reread: Callable[[], Settings] = Settings
    ) -> Working:
        started.append(Working(make, LiveSettings(Settings(), reread)))
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

    work = working(lambda: FakeController(turning))
    wait_until(lambda: work.feed.last.get("failed_turns", 0) > 0)
    assert work.feed.last["error"] == "a turn failed: ZeroDivisionError: of this turn"
    failing.set()
    wait_until(lambda: work.feed.last["error"] is None)
    assert work.feed.last["failed_turns"] > 0


def test_after_some_failures_in_a_row_it_begins_anew(working: Start) -> None:
    turning = failing_with([ZeroDivisionError()] * 3)
    work = working(lambda: FakeController(turning))
    wait_until(lambda: len(work.made) == 2 and work.made[1].turns > 3)
    assert len(work.made) == 2


class Patient(FakeController):
    """Each of its turns fails, and it waits longer after each, as the real one does."""

    wait_s, due_at_s = 0.1, 0.0

    def due_s(self) -> float:
        return self.due_at_s

    def is_due(self, now_s: float) -> bool:
        return now_s >= self.due_at_s

    def take_backoff(self, before: Any) -> None:
        self.wait_s, self.due_at_s = before.wait_s, before.due_at_s

    def turn(self) -> None:
        self.turns += 1
        self.wait_s, self.due_at_s = 2 * self.wait_s, time.time() + self.wait_s
        raise ZeroDivisionError


def test_while_turns_fail_they_become_rarer_though_it_begins_anew(working: Start) -> None:
    began_s = time.time()
    work = working(Patient)
    wait_until(lambda: len(work.made) > 1)
    time.sleep(2)
    turns = sum(one.turns for one in work.made)
    waited_s = Patient.wait_s * (2 ** (turns - 1) - 1)  # between these turns, at least
    assert waited_s <= time.time() - began_s


def test_the_first_turn_waits_until_all_that_the_keeper_remembers_is_read(
    working: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns_module, "_BACKLOG_S", 1000.0)

    def make() -> FakeController:
        work.feed.caught_up = False
        return FakeController()

    work = working(FakeController, lambda: Settings(reserve_nodes=1))
    wait_until(lambda: work.made[0].turns > 0)
    work.make = make
    work.configured.ask()
    wait_until(lambda: len(work.made) == 2)
    wait_until(lambda: work.made[1].takes > 5)
    assert (work.made[1].turns, work.feed.reads) == (0, 2)  # it begins anew: all is told again
    work.feed.caught_up = True
    wait_until(lambda: work.made[1].turns > 0)


def test_a_keeper_that_tells_nothing_does_not_hold_up_the_first_turn_for_ever(
    working: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns_module, "_BACKLOG_S", 0.1)
    monkeypatch.setattr(FakeFeed, "caught_up", False, raising=False)
    work = working(FakeController)
    wait_until(lambda: work.made[0].turns > 0)


def test_a_slurm_that_does_not_answer_is_no_failure_of_ours(working: Start) -> None:
    turning = failing_with(itertools.repeat(SlurmUnavailableError("no answer")))
    work = working(lambda: FakeController(turning))
    wait_until(lambda: work.made[0].turns > 10 and bool(work.feed.of.published))
    assert (work.feed.last["error"], work.feed.last["failed_turns"]) == ("no answer", 0)
    assert len(work.made) == 1


def test_a_slurm_that_answers_nonsense_may_be_a_failure_of_ours(working: Start) -> None:
    turning = failing_with(itertools.repeat(GatewayError("squeue: no such format")))
    work = working(lambda: FakeController(turning))
    wait_until(lambda: len(work.made) > 1 and work.feed.last.get("failed_turns", 0) > 2)
    assert work.feed.last["error"] == "squeue: no such format"


def test_it_tells_systemd_that_it_works_as_often_as_it_turns_and_then_that_it_ends(
    working: Start, told: list[str]
) -> None:
    turns = 0

    def turning() -> None:
        nonlocal turns
        turns += 1
        if turns == 2:
            raise ZeroDivisionError

    work = working(lambda: FakeController(turning))
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

    working(lambda: FakeController(turning))
    assert hangs.wait(120)
    said = list(told)
    time.sleep(0.2)
    assert told == said
    goes_on.set()


def test_why_a_turn_did_less_than_it_should_is_shown(working: Start) -> None:
    work = working(lambda: FakeController(decision=Decision(trouble="no plan: MemoryError")))
    wait_until(lambda: work.feed.last.get("error") == "no plan: MemoryError")


def test_a_status_that_cannot_be_made_ends_nothing(working: Start) -> None:
    showing = failing_with([KeyError("of the status")])
    work = working(lambda: FakeController(showing=showing))
    wait_until(lambda: bool(work.feed.of.published))


def test_where_the_clock_is_set_it_begins_anew(
    working: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = working(FakeController)
    wait_until(lambda: bool(work.made) and work.made[0].turns > 0)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 3600)
    wait_until(lambda: len(work.made) == 2 and work.made[1].turns > 0)


def test_a_controller_that_cannot_be_made_anew_ends_nothing(working: Start) -> None:
    turning = failing_with([ZeroDivisionError()] * 3)
    making = iter([lambda: None, failing_with([OSError("the history")]), *[lambda: None] * 9])

    def make() -> FakeController:
        next(making)()
        return FakeController(turning)

    work = working(make)
    wait_until(lambda: len(work.made) == 2)


def test_a_setting_that_has_changed_is_taken_up_at_once(working: Start) -> None:
    work = working(FakeController, lambda: Settings(reserve_nodes=3))
    wait_until(lambda: bool(work.made) and work.made[0].turns > 0)
    work.configured.ask()
    wait_until(lambda: len(work.made) == 2 and work.made[1].turns > 0)
    assert work.configured.settings.reserve_nodes == 3


def test_a_file_that_is_not_right_changes_nothing_and_is_shown(working: Start) -> None:
    def reread() -> Settings:
        raise SettingsError("bftrainer.toml: unknown key 'colour'")

    work = working(FakeController, reread)
    wait_until(lambda: bool(work.made) and work.made[0].turns > 0)
    work.configured.ask()
    said = "bftrainer.toml: unknown key 'colour'; the earlier settings stay"
    wait_until(lambda: work.feed.last.get("settings") == said)
    assert len(work.made) == 1


def test_its_last_word_is_that_it_has_stopped(working: Start) -> None:
    work = working(FakeController)
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

    configured = LiveSettings(Settings(), Settings)
    work = turns_module.Turns(WithTrainer, FakeFeed(), ABOUT, configured, secret)  # type: ignore[arg-type]
    work.about["metrics"] = "h:1"
    (one,) = work.status()["trainers"]
    assert one.get("page", "").startswith("http://h:1/#trainer=7&key=alice.") is linked
