"""How agents reach a generation's store, which never outlives it, nor takes torchrun with it.

And whether a node's workers failed, or the keeper had ended their generation.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from torch.distributed.elastic.utils.store import barrier

from bftrainer_slurm.elastic.rendezvous import failures, reaching
from bftrainer_slurm.elastic.rendezvous.failures import cause_of
from bftrainer_slurm.elastic.rendezvous.generation_store import GenerationStore
from bftrainer_slurm.elastic.torch_private import open_store
from bftrainer_slurm.keeper.membership import Membership
from bftrainer_slurm.keeper.messages import Change, Dropped, Generation, Identity, Role

pytestmark = pytest.mark.torch
LOSS = Change(planned=False, why="loss")


class Pair:
    """Two agents' stores in one generation; the first one's node hosts it."""

    def __init__(self) -> None:
        self.has_ended = threading.Event()
        timeout = timedelta(seconds=30)
        host = open_store("localhost", 0, hosts=True, timeout=timeout)
        self.port = host.port
        guest = open_store("localhost", self.port, hosts=False, timeout=timeout)
        self.host = GenerationStore(host, self.has_ended.is_set, guests=1)
        self.guest = GenerationStore(guest, self.has_ended.is_set)


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.has_ended.set()


def test_agents_read_what_the_others_have_set(pair: Pair) -> None:
    pair.host.set("a", "1")
    pair.guest.set("b", b"2")
    assert pair.guest.multi_get(["a", "b"]) == [b"1", b"2"]
    assert pair.guest.get("a") == b"1"
    assert [pair.host.add("n", 1), pair.guest.add("n", 1)] == [1, 2]


END = "torchelastic/agent/terminal_state"


def test_the_last_barrier_is_passed_in_silence_though_its_host_is_the_last_to_come(
    pair: Pair, capfd: pytest.CaptureFixture[str]
) -> None:
    waiting = threading.Thread(target=barrier, args=(pair.guest, 2, END))
    waiting.start()
    waiting.join(1.0)
    assert waiting.is_alive()
    barrier(pair.host, 2, END)
    pair.host.close()
    waiting.join()
    lines = capfd.readouterr().err.splitlines()
    of_ours = [one for one in lines if str(pair.port) in one]  # other tests' threads may go on
    assert not [one for one in of_ours if "[c10d]" in one and "hostname" not in one]


def test_a_host_does_not_wait_for_a_guest_that_is_gone(pair: Pair) -> None:
    pair.guest.add(f"{END}/num_members", 1)
    barrier(pair.host, 2, END)
    pair.host.close()


def test_a_barrier_opens_when_the_generation_ends(pair: Pair) -> None:
    threading.Timer(0.3, pair.has_ended.set).start()
    barrier(pair.host, 2, "end", barrier_timeout=300)


def test_a_barrier_opens_when_the_host_is_gone(pair: Pair) -> None:
    threading.Timer(0.3, pair.host.close).start()
    barrier(pair.guest, 2, "end", barrier_timeout=300)


def test_in_a_generation_that_has_ended_any_answer_does(pair: Pair) -> None:
    pair.host.close()
    pair.guest.set("torchelastic/role_info/1", b"mine")
    assert pair.guest.multi_get(["torchelastic/role_info/0", "x"]) == [b"mine", b"mine"]
    assert pair.guest.get("torchelastic/assigned_ranks/1") == b"[0, 1, 0, 1]"
    assert pair.guest.add("n", 1) == 0


class Member:
    """A membership that hears of a change after so many looks."""

    def __init__(self, connected: bool, looks: int = 20) -> None:
        self.connected = connected
        self._looks = looks

    @property
    def change(self) -> Change | None:
        self._looks -= 1
        return LOSS if self._looks < 0 else None


def reached(server: socket.socket, member: Any) -> object:
    return reaching.reached("127.0.0.1", server.getsockname()[1], member)


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    """One that refuses, at a time when an agent has little patience."""
    monkeypatch.setattr(reaching, "_PATIENCE_S", 0.1)
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    return made


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """One whose kernel accepts connections, and that never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_an_agent_that_cannot_reach_a_node_that_lives_says_so(closed: socket.socket) -> None:
    with pytest.raises(
        reaching.RendezvousConnectionError, match=r"Connection refused\. Check that"
    ):
        reached(closed, Member(connected=True, looks=10**9))


def test_one_that_the_keeper_does_not_hear_either_waits_for_its_word(closed: socket.socket) -> None:
    assert reached(closed, Member(connected=False)) is None


def test_an_agent_waits_for_a_store_that_it_has_reached_and_that_is_slow(
    silent: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that swaps must not end the others' torchruns."""

    def answer_late(*_: object, **__: object) -> None:
        raise reaching.DistError("timed out")

    monkeypatch.setattr(reaching, "_PATIENCE_S", 0.1)
    monkeypatch.setattr(reaching.torch_private, "open_store", answer_late)
    assert reached(silent, Member(connected=True)) is None


def test_an_agent_whose_first_node_is_frozen_goes_on_when_the_keeper_has_spoken(
    silent: socket.socket,
) -> None:
    """torch waits for an answer without any limit (2.13)."""
    assert reached(silent, Member(connected=True, looks=3)) is None


GENERATION = Generation(1, 0, 2, None, ())
OWN = "ZeroDivisionError: division by zero"
PEERS = "RuntimeError: [gloo/transport/tcp/pair.cc] Connection closed by peer [10.0.0.2]:4711"
LOST = Dropped("it has fallen silent")


def member(heard: list[Any]) -> Membership:
    """One that has heard all this."""
    made = Membership("127.0.0.1:1", Identity(7, 0, "n1", Role.AGENT), b"secret")
    for message in heard:
        made._on_message(message)
    return made


@pytest.mark.parametrize(
    ("heard", "error", "cause"),
    [
        ([GENERATION], OWN, ("failed", OWN)),
        ([GENERATION], PEERS, ("failed", PEERS)),
        ([GENERATION, LOSS], OWN, ("change", OWN)),
        ([GENERATION, LOSS], PEERS, ("change", "")),
        ([GENERATION, LOSS], failures.UNKNOWN, ("change", "")),
        ([GENERATION, LOST], OWN, ("change", OWN)),
        ([GENERATION, LOSS, GENERATION], OWN, ("failed", OWN)),
    ],
    ids=[
        *("nobody else caused it", "it looks like a peer's", "a loss is told at once after"),
        *("a peer's", "of an unknown cause", "it was declared lost", "in the next generation"),
    ],
)
def test_a_failure_is_the_scripts_unless_the_keeper_has_ended_its_generation(
    heard: list[Any], error: str, cause: tuple[str, str]
) -> None:
    told = member(heard)
    assert cause_of(error, told.over) == cause
    assert told.why == ("loss" if len(heard) > 1 else "")


def test_a_failure_that_looks_like_a_peers_waits_for_the_keepers_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failures, "_PEERS_WORD_S", 120.0)
    told = member([GENERATION])
    threading.Timer(0.1, told._on_message, (LOSS,)).start()
    assert cause_of(PEERS, told.over) == ("change", "")
