"""A peer that is lost while a process group comes to be does not hold the others."""

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from bftrainer_slurm.elastic.collective import Group, PeerLostError
from bftrainer_slurm.keeper.membership import Generation, Peer

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]

TWO = Generation(1, 0, 2, False, None, (Peer(0, "n0", 0, "127.0.0.1", 1),) * 2)


def form(group: Group, peer: Callable[[TCPStore], None]) -> None:
    """Form a group of two as rank 0; ``peer`` is what rank 1 does once it has the store."""

    def offer(endpoint: str) -> None:
        port = int(endpoint.partition(":")[2])
        store = TCPStore("127.0.0.1", port, None, False, timeout=timedelta(seconds=30))
        threading.Thread(target=peer, args=(store,), daemon=True).start()

    group.form(TWO, "gloo", "127.0.0.1", offer)


def test_who_waits_for_a_peer_that_does_not_come_is_free_when_the_keeper_says_so() -> None:
    group = Group()
    with pytest.raises(PeerLostError):
        form(group, lambda _: group.abort("the peer is lost"))
    group.close()


def test_a_peer_that_is_lost_as_it_connects_is_not_waited_for_for_half_an_hour() -> None:
    group = Group()
    with pytest.raises(PeerLostError):
        form(group, lambda store: store.set("here/1", ""))
    group.close()
