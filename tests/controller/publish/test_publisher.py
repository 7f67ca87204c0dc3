"""The status is with the keeper whatever the loop does meanwhile; what systemd is told."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bftrainer_slurm.controller import turns as publisher_module
from bftrainer_slurm.controller.turns import Publisher, notify
from bftrainer_slurm.keeper.client import KeeperError
from scripts.labcluster.waiting import wait_until
from tests.controller.fake_keeper import FakeFeed, FakeKeeper

STATUS: dict[str, Any] = {"time_s": 5.0, "controller": {"pid": 7}}
STOPPED: dict[str, Any] = {"time_s": 6.0, "controller": {"pid": 7, "error": "stopped"}}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_module, "PUBLISH_EVERY_S", 0.01)


@pytest.fixture
def soon_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_module, "_LONG_S", 0.05)


@pytest.fixture
def keeper() -> FakeKeeper:
    return FakeKeeper()


@pytest.fixture
def publisher(keeper: FakeKeeper) -> Iterator[Publisher]:
    started = Publisher(FakeFeed(keeper))  # type: ignore[arg-type]
    started.start()
    yield started
    started.stop(STOPPED)


def test_what_is_shown_is_published(publisher: Publisher, keeper: FakeKeeper) -> None:
    publisher.show(STATUS)
    wait_until(lambda: bool(keeper.published))
    assert keeper.published[0] == STATUS


def test_before_anything_is_shown_nothing_is(publisher: Publisher, keeper: FakeKeeper) -> None:
    publisher.stop(STOPPED)
    assert keeper.published == [STOPPED]


def test_a_status_is_published_again_and_again_while_the_loop_is_busy(
    publisher: Publisher, keeper: FakeKeeper
) -> None:
    publisher.show(STATUS)
    wait_until(lambda: len(keeper.published) >= 3)


def test_for_how_long_the_loop_has_been_busy_is_in_it(
    soon_long: None, publisher: Publisher, keeper: FakeKeeper
) -> None:
    publisher.show(STATUS)
    wait_until(lambda: "busy_s" in (keeper.published or [STATUS])[-1]["controller"])
    assert keeper.published[-1]["controller"].keys() == {"pid", "busy_s"}
    assert "busy_s" not in STATUS["controller"]


@pytest.mark.parametrize("error", [KeeperError("no answer"), TypeError("no JSON")])
def test_whatever_goes_wrong_it_is_published_later(
    publisher: Publisher, keeper: FakeKeeper, error: Exception
) -> None:
    left = [error]

    def fails_once() -> None:
        if left:
            raise left.pop()

    keeper.answers = fails_once
    publisher.show(STATUS)
    wait_until(lambda: bool(keeper.published))


def test_the_last_word_is_the_last(publisher: Publisher, keeper: FakeKeeper) -> None:
    publisher.show(STATUS)
    publisher.stop(STOPPED)
    assert keeper.published[-1] == STOPPED
    assert publisher.age_s >= 0


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
