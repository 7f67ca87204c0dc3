"""A peer that is lost while a process group comes to be does not hold the others."""

import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from bftrainer_slurm.elastic.inprocess import collective
from bftrainer_slurm.elastic.inprocess.collective import Communicator
from bftrainer_slurm.elastic.inprocess.phases import PeerLostError
from bftrainer_slurm.elastic.torch_private import open_store
from bftrainer_slurm.keeper.messages import Generation, Peer

pytestmark = pytest.mark.torch

TWO = Generation(1, 0, 2, False, None, (Peer(0, "n0", 0),) * 2)


def form(group: Communicator, peer: Callable[[TCPStore], None]) -> None:
    """Form a group of two as rank 0; ``peer`` is what rank 1 does once it has the store."""

    def offer(endpoint: str) -> None:
        port = int(endpoint.partition(":")[2])
        store = open_store("127.0.0.1", port, hosts=False, timeout=timedelta(seconds=30))
        threading.Thread(target=peer, args=(store,), daemon=True).start()

    group.form(TWO, "127.0.0.1", offer)


def test_who_waits_for_a_peer_that_does_not_come_is_free_when_the_keeper_says_so() -> None:
    group = Communicator()
    with pytest.raises(PeerLostError):
        form(group, lambda _: group.abort("the peer is lost"))
    group.close()


def refuse(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_who_waits_is_free_also_where_no_thread_can_be_started_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def abort(_: TCPStore) -> None:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        group.abort("the peer is lost")

    group = Communicator()
    with pytest.raises(PeerLostError):
        form(group, abort)
    group.close()


def test_without_the_thread_that_would_abort_a_group_the_process_ends_and_forms_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not as if a peer were lost: it would try again and again."""
    group = Communicator()
    with monkeypatch.context() as without, pytest.raises(RuntimeError, match="new thread"):
        without.setattr(threading.Thread, "start", refuse)
        group.form(TWO, "127.0.0.1", lambda _: None)
    group.close()


def test_a_peer_that_is_lost_as_it_connects_is_not_waited_for_for_half_an_hour() -> None:
    group = Communicator()
    with pytest.raises(PeerLostError):
        form(group, lambda store: store.set("here/1", ""))
    group.close()


PEER = """
from bftrainer_slurm.elastic.inprocess import collective
from bftrainer_slurm.keeper.messages import Generation, Peer
collective.FORM_S = 100.0
print("ready", flush=True)
peers = (Peer(0, "n0", 0),) * 2
collective.Communicator().form(Generation(1, 1, 2, False, input(), peers), "127.0.0.1", None)
"""


def test_who_has_failed_to_form_a_group_meets_a_peer_that_has_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = Communicator()
    with pytest.raises(PeerLostError):
        form(group, lambda store: store.set("here/1", ""))
    group.close()
    monkeypatch.setattr(collective, "FORM_S", 100.0)
    group, pipe = Communicator(), subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", PEER], stdin=pipe, stdout=pipe, text=True) as peer:
        assert peer.stdin is not None and peer.stdout is not None
        try:
            assert peer.stdout.readline() == "ready\n"
            tell = partial(print, file=peer.stdin, flush=True)
            group.form(TWO, "127.0.0.1", tell)
            assert peer.wait(120) == 0
        finally:
            group.close()
            peer.kill()


def test_a_store_that_does_not_answer_holds_nobody_once_the_keeper_has_spoken() -> None:
    """torch waits for it without any limit of time (2.13)."""
    group = Communicator()
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        second = replace(TWO, rank=1, store=f"127.0.0.1:{frozen.getsockname()[1]}")
        threading.Timer(0.5, group.abort, ("the first rank is lost",)).start()
        with pytest.raises(PeerLostError):
            group.form(second, "127.0.0.1", lambda _: None)
    group.close()


# The keeper says at once that the first generation has ended; the store of its rank 0 hangs.
TOLD_AT_ONCE = """
import socket
from bftrainer_slurm.elastic.inprocess import peers
from bftrainer_slurm.keeper.messages import Change, Generation, Peer

class Told:
    def __init__(self, *given, on_notice):
        self.change, self.why, self.hear = None, "", on_notice
    def wait_generation(self):
        generation, *more = next(said)
        for notice in (generation, *more):
            self.change = notice if isinstance(notice, Change) else None
            self.hear(notice)
        return generation
    def ready(self, *given, **options): pass
    def offer_store(self, *given): pass
    def start(self): pass
    def broken(self): pass

members = Peer(0, "n0", 0), Peer(1, "n1", 0)
peers.Membership = Told
element = {"BFTRAINER_KEEPER": "127.0.0.1:1", "BFTRAINER_ELEMENT": "12_1", "SLURMD_NODENAME": "n1"}
with socket.create_server(("127.0.0.1", 0)) as frozen:
    store = f"127.0.0.1:{frozen.getsockname()[1]}"
    ended = Generation(1, 1, 2, False, store, members), Change(False, "loss")
    said = iter([ended, (Generation(2, 0, 1, False, None, members[1:]),)])
    print(peers.ElementPeers(element, None).form(None).number)
"""


def test_a_change_that_comes_just_after_its_generation_is_not_forgotten() -> None:
    told = subprocess.run(
        [sys.executable, "-c", TOLD_AT_ONCE], check=True, capture_output=True, timeout=600
    )
    assert told.stdout == b"2\n"
