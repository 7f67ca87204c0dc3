"""When a process gives up, and when it goes on trying."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bftrainer_slurm.elastic import tries
from bftrainer_slurm.elastic.tries import LEAST_S, NoGroupError, Tries
from bftrainer_slurm.keeper.messages import Change, Peer

ONE, TWO, THREE = (Peer(task, f"n{task}", 0) for task in (1, 2, 3))
REFUSED = "connect: Connection refused\nException raised from somewhere"


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def fail(tried: Tries, *members: Peer, cause: str = REFUSED) -> None:
    tried.begin(members)
    tried.failed(cause)
    tried.check()


def test_after_three_tries_in_a_minute_it_is_told_what_failed_and_what_to_check(
    clock: Clock,
) -> None:
    tried = Tries(clock)
    fail(tried, ONE, TWO)
    clock.now_s += LEAST_S
    fail(tried, ONE, TWO)
    with pytest.raises(NoGroupError) as error:
        fail(tried, TWO, ONE)
    said = str(error.value)
    assert "2 processes that are all alive" in said
    assert "3 tries in 60 s" in said
    assert "Connection refused. Check that the nodes reach each other" in said
    assert "\n" not in said


def test_a_network_that_is_cut_for_a_while_ends_nobody_however_often_it_is_tried(
    clock: Clock,
) -> None:
    tried = Tries(clock)
    for _ in range(100):
        fail(tried, ONE, TWO)
        clock.now_s += 0.1


def test_where_somebody_is_lost_or_comes_it_begins_anew(clock: Clock) -> None:
    tried = Tries(clock)
    for members in [(ONE, TWO, THREE), (ONE, TWO, THREE), (ONE, TWO), (ONE, TWO), (ONE,)] * 3:
        fail(tried, *members)
        clock.now_s += LEAST_S


def test_where_steps_are_made_in_between_it_begins_anew(clock: Clock) -> None:
    tried = Tries(clock)
    for step in range(10):
        tried.begin((ONE, TWO))
        tried.stepped(step)
        tried.stepped(step + 1)
        tried.failed(REFUSED)
        tried.check()
        clock.now_s += LEAST_S


def test_a_step_that_came_from_others_is_none(clock: Clock) -> None:
    tried = Tries(clock)
    with pytest.raises(NoGroupError):
        for step in range(3):
            tried.begin((ONE, TWO))
            tried.stepped(step)
            tried.failed("cannot allocate memory")
            tried.check()
            clock.now_s += LEAST_S


@pytest.mark.parametrize(
    "cause",
    [
        "Connection closed by peer [n1]:22",
        "Read error [n1]:22: Connection reset by peer",
        "Connection was likely closed. Did the server",
    ],
)
def test_who_was_hung_up_on_is_not_the_one_to_give_up(clock: Clock, cause: str) -> None:
    tried = Tries(clock)
    for _ in range(10):
        fail(tried, ONE, TWO, cause=cause)
        clock.now_s += LEAST_S


def test_the_first_new_try_comes_at_once_and_later_ones_ever_later(clock: Clock) -> None:
    tried = Tries(clock)
    pauses = [tried.pause_s()]
    for _ in range(6):
        fail(tried, ONE, TWO)
        pauses.append(tried.pause_s())
    assert pauses == [0, 0, 1, 2, 4, 5, 5]


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
    from bftrainer_slurm.elastic.rendezvous import agent

    monkeypatch.setattr(tries, "LEAST_S", 0.5)
    one = SimpleNamespace(_membership=SimpleNamespace(change=None, connected=True))
    with pytest.raises(agent.RendezvousConnectionError, match=r"Connection refused\. Check that"):
        agent.AgentRendezvous._reach(cast(Any, one), "127.0.0.1", closed_port)


@pytest.mark.torch
def test_one_that_the_keeper_does_not_hear_either_waits_for_its_word(
    closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bftrainer_slurm.elastic.rendezvous import agent

    class CutOff:
        """Hears of a change after many looks."""

        connected = False
        looks = 0

        @property
        def change(self) -> Change | None:
            self.looks += 1
            return Change(1, planned=False, why="loss") if self.looks > 20 else None

    monkeypatch.setattr(tries, "LEAST_S", 0.1)
    one = SimpleNamespace(_membership=CutOff())
    assert agent.AgentRendezvous._reach(cast(Any, one), "127.0.0.1", closed_port) is None
