"""How an agent reaches the store of its generation, on another node, while the generation lasts."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from datetime import timedelta
from queue import Empty, SimpleQueue

from torch.distributed import DistError, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous.api import RendezvousConnectionError

from bftrainer_slurm.elastic import torch_private
from bftrainer_slurm.keeper.membership import Membership

_ATTEMPT = timedelta(seconds=1)  # for a store to answer, before we look whether its host is lost
_BETWEEN_ATTEMPTS_S = 0.05
_LOOK_S = 0.2
_PATIENCE_S = 60.0  # a network may be cut for a while
_MAX_CAUSE = 300  # characters
_CHECK = (
    "Check that the nodes reach each other on all ports (firewall; PET_LOCAL_ADDR and "
    "GLOO_SOCKET_IFNAME say by which addresses), and that there is memory left"
)


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
            if (store := _opened(host, port, membership)) is not None:
                return store
        except (OSError, DistError) as error:
            now_s = time.monotonic()
            # If it is only slow, or nobody could tell us that it is lost, we wait.
            if reached or not membership.connected:
                heard_s = now_s
            elif now_s - heard_s >= _PATIENCE_S:
                raise RendezvousConnectionError(
                    f"bftrainer: {host}:{port} cannot be reached from this node for "
                    f"{now_s - heard_s:.0f} s, though the keeper hears that one: "
                    f"{_one_line(str(error))}. {_CHECK}"
                ) from error
            time.sleep(_BETWEEN_ATTEMPTS_S)
    return None


def _opened(host: str, port: int, membership: Membership) -> TCPStore | None:
    """Open the store in a thread, which is left alone once the generation has ended: then None.

    For an answer to its first word torch waits without any limit (2.13): of a node that is frozen,
    the kernel still accepts connections.
    """
    answers = SimpleQueue[TCPStore | Exception]()

    def answer() -> None:
        try:
            answers.put(torch_private.open_store(host, port, hosts=False, timeout=_ATTEMPT))
        except Exception as error:
            answers.put(error)

    threading.Thread(target=answer, daemon=True).start()
    while membership.change is None:
        with suppress(Empty):
            found = answers.get(timeout=_LOOK_S)
            if isinstance(found, Exception):
                raise found
            return found
    return None


def _one_line(cause: str) -> str:
    return cause.strip().partition("\n")[0][:_MAX_CAUSE].rstrip(".")
