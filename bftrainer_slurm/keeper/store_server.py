"""Hosts torch's stores for the keeper: ``python -m bftrainer_slurm.keeper.store_server``.

Orders come as messages on standard input, a Unix socket: NAME HOST PORT with a listening socket to
open a store, NAME alone to close it. The process ends when the keeper does.
"""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
from dataclasses import dataclass
from datetime import timedelta

_TIMEOUT = timedelta(seconds=60)
_LONGEST = 4096  # bytes

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Order:
    """What the keeper wants; without a listening socket: that a store is closed."""

    words: list[str]
    listener: int | None


def main() -> None:
    """Follow orders until the keeper is gone."""
    channel = socket.socket(fileno=os.dup(0))
    orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
    # The keeper must not wait while torch is imported.
    threading.Thread(target=_receive, args=(channel, orders), daemon=True).start()
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    stores: dict[str, TCPStore] = {}
    while (order := orders.get()) is not None:
        name = order.words[0]
        if order.listener is None:
            stores.pop(name, None)
            continue
        try:
            stores[name] = TCPStore(
                order.words[1],
                int(order.words[2]),
                is_master=True,
                wait_for_workers=False,
                timeout=_TIMEOUT,
                master_listen_fd=order.listener,  # the store's from here on
            )
        except RuntimeError as error:
            logger.error("no store for %s: %s", name, error)


def _receive(channel: socket.socket, orders: queue.SimpleQueue[Order | None]) -> None:
    while True:
        text, listeners, _, _ = socket.recv_fds(channel, _LONGEST, 1)
        if not text:
            orders.put(None)
            return
        orders.put(Order(text.decode().split(), listeners[0] if listeners else None))


if __name__ == "__main__":
    main()
