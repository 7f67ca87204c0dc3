"""How an agent reaches the store of its generation, on another node, while the generation lasts."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

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
            with _cut_once(lambda: membership.change is not None, host, port):
                store = torch_private.open_store(host, port, hosts=False, timeout=_ATTEMPT)
            if membership.change is None:  # else it may be cut already
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


@contextmanager
def _cut_once(over: Callable[[], bool], host: str, port: int) -> Iterator[None]:
    """Cut the connections to a store once the generation is over.

    For an answer to its first word torch waits without any limit (2.13): of a node that is frozen,
    the kernel still accepts connections.
    """
    opened = threading.Event()
    places = {_endpoint(one[-1]) for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}

    def watch() -> None:
        while not opened.wait(_LOOK_S):
            if over():
                _shut_down(places)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        opened.set()


def _shut_down(places: Collection[tuple[str, int]]) -> None:
    """End this process's connections to these places; their owner closes the descriptors."""
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed in between, or never connected
            if str(entry.readlink()).startswith("socket:"):
                # A duplicate: the number may be another file's soon.
                with socket.socket(fileno=os.dup(int(entry.name))) as one:
                    inet = one.family in (socket.AF_INET, socket.AF_INET6)
                    if inet and _endpoint(one.getpeername()) in places:
                        one.shutdown(socket.SHUT_RDWR)


def _endpoint(address: tuple[Any, ...]) -> tuple[str, int]:
    """Return an address and port, the same for IPv4 through IPv6 as for IPv4."""
    return str(address[0]).removeprefix("::ffff:"), address[1]


def _one_line(cause: str) -> str:
    return cause.strip().partition("\n")[0][:_MAX_CAUSE].rstrip(".")
