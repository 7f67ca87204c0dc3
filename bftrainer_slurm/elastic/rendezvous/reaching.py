"""How an agent reaches the store of its generation, on another node, while the generation lasts."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from torch.distributed import DistError, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous.api import RendezvousConnectionError

from bftrainer_slurm.elastic import torch_private, tries
from bftrainer_slurm.elastic.inprocess.sockets import Connections
from bftrainer_slurm.keeper.membership import Membership

_ATTEMPT = timedelta(seconds=1)  # for a store to answer, before we look whether its host is lost
_BETWEEN_ATTEMPTS_S = 0.05
_LOOK_S = 0.2


def reached(host: str, port: int, membership: Membership) -> TCPStore | None:
    """Return the generation's store, or None if the generation has ended.

    Raises:
        RendezvousConnectionError: it cannot be reached, though the keeper hears its node.
    """
    heard_s, reached = time.monotonic(), False
    while membership.change is None:
        try:
            # TCPStore alone would log long complaints about a host that was just lost.
            socket.create_connection((host, port), _ATTEMPT.total_seconds()).close()
            reached = True
            with _cut_once(lambda: membership.change is not None, host, port):
                store = torch_private.open_store(host, port, hosts=False, timeout=_ATTEMPT)
            if membership.change is None:  # else it may be cut already
                return store
        except (OSError, DistError) as error:
            now_s = time.monotonic()
            # If it is only slow, or nobody could tell us that it is lost, we wait.
            if reached or not membership.connected:
                heard_s = now_s
            elif now_s - heard_s >= tries.LEAST_S:
                why = tries.unreachable(f"{host}:{port}", str(error), now_s - heard_s)
                raise RendezvousConnectionError(why) from error
            time.sleep(_BETWEEN_ATTEMPTS_S)
    return None


@contextmanager
def _cut_once(over: Callable[[], bool], host: str, port: int) -> Iterator[None]:
    """Cut the connections to a store once the generation is over.

    For an answer to its first word torch waits without any limit (2.13): of a node that is frozen,
    the kernel still accepts connections.
    """
    connections, opened = Connections(), threading.Event()
    connections.add_store(host, port, hosted=False)

    def watch() -> None:
        while not opened.wait(_LOOK_S):
            if over():
                connections.shut_down()

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        opened.set()
