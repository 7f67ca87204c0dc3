"""A network between one node and the keeper that can be cut, one way or both, and healed."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_TO_KEEPER, _TO_NODE = "to the keeper", "to the node"
BOTH = (_TO_KEEPER, _TO_NODE)


class Network:
    """What a node connects to in place of the keeper. What is cut is delivered once it is healed.

    As in a real network whose packets are lost: nobody is told that it is cut.
    """

    def __init__(self, keeper: str) -> None:
        host, port = keeper.split(":")
        self.keeper = host, int(port)
        self.cut: tuple[str, ...] = ()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join(60)

    def _carry(self) -> None:
        waiting: list[socket.socket] = []  # whose connection waits until it is healed
        pairs: dict[socket.socket, tuple[socket.socket, str]] = {}
        with contextlib.ExitStack() as opened, selectors.DefaultSelector() as selector:
            opened.enter_context(self._listener)
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._over.is_set():
                ready = [key.fileobj for key, _ in selector.select(0.02)]
                if self._listener in ready:
                    waiting.append(opened.enter_context(self._listener.accept()[0]))
                while waiting and not self.cut:
                    node = waiting.pop(0)
                    try:
                        keeper = opened.enter_context(socket.create_connection(self.keeper, 5))
                    except OSError:
                        node.close()
                        continue
                    pairs |= {node: (keeper, _TO_KEEPER), keeper: (node, _TO_NODE)}
                    for one in (node, keeper):
                        selector.register(one, selectors.EVENT_READ)
                for one in ready:
                    if isinstance(one, socket.socket) and one in pairs:
                        self._pass_on(one, pairs, selector)

    def _pass_on(
        self,
        one: socket.socket,
        pairs: dict[socket.socket, tuple[socket.socket, str]],
        selector: selectors.DefaultSelector,
    ) -> None:
        other, way = pairs[one]
        if way in self.cut:
            self._over.wait(0.01)  # it stays in the kernel
            return
        try:
            data = one.recv(65_536)
            if data:
                other.sendall(data)
        except OSError:
            data = b""
        if not data:
            for end in (one, other):
                del pairs[end]
                selector.unregister(end)
                end.close()


@contextmanager
def network_to(keeper: str) -> Iterator[Network]:
    """Yield a node's network."""
    network = Network(keeper)
    try:
        yield network
    finally:
        network.end()
