"""When a process gives up, and when it goes on trying."""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bftrainer_slurm.elastic import tries
from bftrainer_slurm.elastic.tries import LEAST_S, NoGroupError, Tries
from bftrainer_slurm.keeper.messages import Change, Generation, Peer

Fail = Callable[..., None]
ONE, TWO, THREE = (Peer(task, f"n{task}", 0) for task in (1, 2, 3))
REFUSED = "connect: Connection refused\nException raised from somewhere"


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tried(clock: Clock) -> Tries:
    return Tries(clock)


@pytest.fixture
def fail(tried: Tries, clock: Clock) -> Fail:
    def once(*members: Peer, cause: str = REFUSED, seconds: float = LEAST_S / 3) -> None:
        tried.begin(members)
        clock.sleep(seconds)
        tried.failed(cause)
        tried.check()

    return once


def test_after_three_tries_in_a_minute_it_is_told_what_failed_and_what_to_check(fail: Fail) -> None:
    fail(ONE, TWO)
    fail(ONE, TWO)
    with pytest.raises(NoGroupError) as error:
        fail(TWO, ONE)
    said = str(error.value)
    assert "2 processes that are all alive" in said
    assert "3 tries in 60 s" in said
    assert "Connection refused. Check that the nodes reach each other" in said
    assert "\n" not in said


def test_a_network_that_is_cut_for_a_while_ends_nobody_however_often_it_is_tried(
    fail: Fail,
) -> None:
    for _ in range(100):
        fail(ONE, TWO, seconds=0.1)


def test_time_in_which_there_was_no_generation_to_try_does_not_count(
    fail: Fail, clock: Clock
) -> None:
    for _ in range(10):
        fail(ONE, TWO, seconds=0.1)
        clock.sleep(10 * LEAST_S)


def test_pauses_between_tries_count(fail: Fail, tried: Tries, clock: Clock) -> None:
    with pytest.raises(NoGroupError):
        for _ in range(20):
            fail(ONE, TWO, seconds=0.0)
            tried.pause(clock.sleep)


def test_where_somebody_is_lost_or_comes_it_begins_anew(fail: Fail) -> None:
    for members in [(ONE, TWO, THREE), (ONE, TWO, THREE), (ONE, TWO), (ONE, TWO), (ONE,)] * 3:
        fail(*members, seconds=LEAST_S)


def test_where_steps_are_made_in_between_it_begins_anew(tried: Tries, clock: Clock) -> None:
    for step in range(10):
        tried.begin((ONE, TWO))
        tried.stepped(step)
        tried.stepped(step + 1)
        clock.sleep(LEAST_S)
        tried.failed(REFUSED)
        tried.check()


def test_time_in_which_it_trained_does_not_count(fail: Fail, tried: Tries, clock: Clock) -> None:
    tried.begin((ONE, TWO))
    for step in range(10):
        clock.sleep(LEAST_S)
        tried.stepped(step)
    tried.failed(REFUSED)
    for _ in range(10):
        fail(ONE, TWO, seconds=0.1)


def test_a_step_that_came_from_others_is_none(tried: Tries, clock: Clock) -> None:
    with pytest.raises(NoGroupError):
        for step in range(3):
            tried.begin((ONE, TWO))
            tried.stepped(step)
            clock.sleep(LEAST_S)
            tried.failed("cannot allocate memory")
            tried.check()


@pytest.mark.parametrize(
    "cause",
    [
        "Connection closed by peer [n1]:22",
        "Read error [n1]:22: Connection reset by peer",
        "Connection was likely closed. Did the server",
    ],
)
def test_who_was_hung_up_on_is_not_the_one_to_give_up(fail: Fail, cause: str) -> None:
    for _ in range(10):
        fail(ONE, TWO, cause=cause)


def test_the_first_new_try_comes_at_once_and_later_ones_ever_later(
    fail: Fail, tried: Tries
) -> None:
    pauses: list[float] = []
    tried.pause(pauses.append)
    for _ in range(6):
        fail(ONE, TWO, seconds=0.1)
        tried.pause(pauses.append)
    assert pauses == [1, 2, 4, 5, 5]


# How a generation forms in a training process.


@pytest.mark.torch
@pytest.mark.parametrize("reached", [True, False])
def test_only_a_store_that_cannot_be_reached_is_ones_own_failure(
    reached: bool, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bftrainer_slurm.elastic.inprocess import collective

    def answer_late(*_: object, **__: object) -> None:
        raise RuntimeError("timed out")

    monkeypatch.setattr(collective, "open_store", answer_late)
    group = collective.Communicator()
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(collective.PeerLostError):
        port = server.getsockname()[1] if reached else closed_port
        second = Generation(1, 1, 2, False, f"127.0.0.1:{port}", (ONE, TWO))
        group.form(second, "127.0.0.1", lambda _: None)
    assert (group.own_failure is None) == reached


# torchrun's agent, whose generation waits until it reaches the first node's store.


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.mark.torch
def test_an_agent_that_cannot_reach_a_node_that_lives_says_so(
    closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bftrainer_slurm.elastic.rendezvous import reaching

    monkeypatch.setattr(tries, "LEAST_S", 0.5)
    one = SimpleNamespace(change=None, connected=True)
    error = reaching.RendezvousConnectionError
    with pytest.raises(error, match=r"Connection refused\. Check that"):
        reaching.reached("127.0.0.1", closed_port, cast(Any, one))


class Patient:
    """A membership that hears of a change after many looks."""

    def __init__(self, connected: bool, looks: int = 20) -> None:
        self.connected = connected
        self._looks = looks

    @property
    def change(self) -> Change | None:
        self._looks -= 1
        return Change(planned=False, why="loss") if self._looks < 0 else None


@pytest.mark.torch
def test_one_that_the_keeper_does_not_hear_either_waits_for_its_word(
    closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bftrainer_slurm.elastic.rendezvous import reaching

    monkeypatch.setattr(tries, "LEAST_S", 0.1)
    one = Patient(connected=False)
    assert reaching.reached("127.0.0.1", closed_port, cast(Any, one)) is None


@pytest.mark.torch
def test_an_agent_waits_for_a_store_that_it_has_reached_and_that_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node that swaps must not end the others' torchruns."""
    from bftrainer_slurm.elastic.rendezvous import reaching

    def answer_late(*_: object, **__: object) -> None:
        raise reaching.DistError("timed out")

    monkeypatch.setattr(tries, "LEAST_S", 0.1)
    monkeypatch.setattr(reaching.torch_private, "open_store", answer_late)
    one = Patient(connected=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert reaching.reached("127.0.0.1", port, cast(Any, one)) is None


@pytest.mark.torch
def test_an_agent_whose_first_node_is_frozen_goes_on_when_the_keeper_has_spoken() -> None:
    """Its kernel accepts connections, and torch waits for an answer without any limit (2.13)."""
    from bftrainer_slurm.elastic.rendezvous import reaching

    one = Patient(connected=True, looks=3)
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        port = frozen.getsockname()[1]
        assert reaching.reached("127.0.0.1", port, cast(Any, one)) is None
