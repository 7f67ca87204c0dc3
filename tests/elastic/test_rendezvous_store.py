"""A generation's store never outlives its generation, and never takes torchrun with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from torch.distributed.elastic.utils.store import barrier  # noqa: E402

from bftrainer_slurm.elastic.rendezvous.generation_store import GenerationStore  # noqa: E402
from bftrainer_slurm.elastic.torch_private import open_store  # noqa: E402


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


def test_a_barrier_holds_until_all_have_come(pair: Pair) -> None:
    passed = threading.Event()
    waiting = threading.Thread(target=lambda: (barrier(pair.guest, 2, "end"), passed.set()))
    waiting.start()
    assert not passed.wait(0.5)
    barrier(pair.host, 2, "end")
    waiting.join()
    assert passed.is_set()


def test_the_last_barrier_is_passed_in_silence_though_its_host_is_the_last_to_come(
    pair: Pair, capfd: pytest.CaptureFixture[str]
) -> None:
    end = "torchelastic/agent/terminal_state"
    waiting = threading.Thread(target=barrier, args=(pair.guest, 2, end))
    waiting.start()
    waiting.join(1.0)
    assert waiting.is_alive()
    barrier(pair.host, 2, end)
    pair.host.close()
    waiting.join()
    lines = capfd.readouterr().err.splitlines()
    of_ours = [one for one in lines if str(pair.port) in one]  # other tests' threads may go on
    assert not [one for one in of_ours if "[c10d]" in one and "hostname" not in one]


def test_a_host_does_not_wait_for_a_guest_that_is_gone(pair: Pair) -> None:
    end = "torchelastic/agent/terminal_state"
    pair.guest.add(f"{end}/num_members", 1)
    barrier(pair.host, 2, end)
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
