"""A client's side of its connection to the keeper: its lines, and the thread that keeps it up.

Standard library only. Who joins a group is in ``membership``; who runs a batch script is in
``elastic.batch.meeting``.
"""

from __future__ import annotations

import contextlib
import os
import random
import selectors
import socket
import threading
import time
import weakref
from abc import ABC, abstractmethod
from itertools import cycle

from bftrainer_slurm.keeper.credentials import CredentialError, introduce, why_refused
from bftrainer_slurm.keeper.messages import (
    FromKeeper,
    FromMember,
    Held,
    Identity,
    Join,
    Ping,
    Welcome,
    encode,
    parse_from_keeper,
    parse_from_member,
)
from bftrainer_slurm.keeper.protocol import MAX_ANSWER, ProtocolError, parse_addresses

PING_S = 1.0
CONNECT_S = 5.0  # for all addresses together
KEEPER_SILENCE_S = 30.0  # a keeper that is silent for longer is gone with its host
MOVED_S = 10.0  # the same, if the keeper may have moved to another host
SHORTEST_PAUSE_S = 0.1  # between two tries to connect; the next one is twice as long
_DONE_S = 2.0  # saying goodbye takes this long at most


class Conversation(ABC):
    """A daemon thread that talks to the keeper, and connects again for ever.

    ``keeper`` is HOST:PORT, or several with commas between them, which are tried in turn;
    ``secret`` is the trainer's. The methods that begin with ``_on`` are called in that thread. What
    several threads use is guarded by ``_state``.

    Raises:
        ProtocolError: a field of ``identity`` is invalid, or ``keeper`` is not an address.
    """

    longest_pause_s = 5.0

    def __init__(self, keeper: str, identity: Identity, secret: bytes) -> None:
        parse_from_member(encode(Join(identity)))
        self._addresses = parse_addresses(keeper)
        self._silence_s = KEEPER_SILENCE_S if len(self._addresses) == 1 else MOVED_S
        self._identity = identity
        self._secret = secret
        self._held: Held | None = None  # the last generation given
        self._state = threading.Condition()
        self._outgoing: list[bytes] = []
        self._standing: dict[type[FromMember], FromMember] = {}  # said again to each keeper
        # Whether the keeper answers, as far as is known: its silence is noticed after a while.
        self.connected = False
        self._stopping = threading.Event()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._thread = threading.Thread(target=self._live, name="bftrainer-keeper", daemon=True)

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._thread.start()

    def _say(self, message: FromMember) -> None:
        """Say something, if there is a connection; with ``_state`` held."""
        if self.connected:
            self._outgoing.append(encode(message))
            self._wake()

    def _stand(self, message: FromMember) -> None:
        """Say something that holds until something else is said, or this is answered; the same."""
        self._standing[type(message)] = message
        self._say(message)

    def _on_welcome(self) -> None:
        """This process is a member."""
        with self._state:
            self.connected = True
            for message in self._standing.values():
                self._say(message)

    def _on_turn(self, now_s: float) -> list[bytes]:
        """Return what there is to say: once a second, and after each ``_wake``."""
        with self._state:
            said, self._outgoing = self._outgoing, []
            return said

    @abstractmethod
    def _on_message(self, message: FromKeeper) -> None:
        """The keeper has said something."""

    def _on_loss(self, error: Exception | None) -> None:
        """There is no connection, or no more; None: this side has ended it."""
        with self._state:
            self.connected = False
            self._outgoing.clear()
            self._state.notify_all()

    @abstractmethod
    def _on_failure(self, error: Exception) -> None:
        """The thread ends, as something went wrong that nobody foresaw."""

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is awake already
            self._wake_in.send(b".")

    def _stop(self) -> None:
        """End the connection once all is sent; nothing comes after it."""
        self._stopping.set()
        self._wake()

    def _join_thread(self) -> None:
        """Wait for the end of the connection, in any other thread."""
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_DONE_S)

    def _live(self) -> None:
        try:
            self._stay_connected()
        except Exception as error:
            self._on_loss(error)
            self._on_failure(error)

    def _stay_connected(self) -> None:
        pause_s = SHORTEST_PAUSE_S
        connect_s = CONNECT_S / len(self._addresses)
        for address in cycle(self._addresses):
            if self._stopping.is_set():
                break
            began_s, failure = time.monotonic(), None
            try:
                with socket.create_connection(address, connect_s) as connection:
                    _connections.add(connection)
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    who, join = str(self._identity.array), encode(Join(self._identity, self._held))
                    introduce(connection, who, self._secret, join, CONNECT_S)
                    self._speak(connection)
            except (OSError, ValueError, CredentialError) as error:
                failure = error
            self._on_loss(failure)
            if time.monotonic() - began_s > 2 * self.longest_pause_s:  # it did not fail at once
                pause_s = SHORTEST_PAUSE_S
            if address == self._addresses[-1]:
                self._stopping.wait(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(self.longest_pause_s, 2 * pause_s)

    def _speak(self, connection: socket.socket) -> None:
        """Send and receive messages until something ends the connection.

        Raises:
            ConnectionError: the keeper does not take this process, hangs up, or is silent.
        """
        heard_s = ping_s = time.monotonic()
        number, rest = 0, b""
        connection.settimeout(CONNECT_S)
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            selector.register(self._wake_out, selectors.EVENT_READ)
            while True:
                now_s = time.monotonic()
                over = self._stopping.is_set()  # first: what was said before that is sent
                lines = self._on_turn(now_s)
                if now_s >= ping_s:
                    number, ping_s = number + 1, now_s + PING_S
                    lines.insert(0, encode(Ping(number)))
                connection.sendall(b"".join(lines))
                if over:
                    return
                if now_s - heard_s > self._silence_s:
                    raise ConnectionError("it is silent")
                for key, _ in selector.select(max(0.0, ping_s - time.monotonic())):
                    if key.fileobj is self._wake_out:
                        self._wake_out.recv(4096)
                        continue
                    if not (data := connection.recv(65_536)):
                        raise ConnectionResetError("the keeper hung up")
                    heard_s = time.monotonic()
                    *whole, rest = (rest + data).split(b"\n")
                    if len(rest) > MAX_ANSWER:
                        raise ProtocolError("the keeper's line is too long")
                    for line in whole:
                        self._take(line)

    def _take(self, line: bytes) -> None:
        if why := why_refused(line.decode("ascii", "replace")):
            raise ConnectionError(why)
        message = parse_from_keeper(line)
        if isinstance(message, Welcome):
            self._on_welcome()
        else:
            self._on_message(message)


# A forked child (a worker of a DataLoader) would keep the connection open beyond its parent's end,
# and a loss would be noticed only by silence.
_connections: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_inherited() -> None:
    for connection in _connections:
        connection.close()


os.register_at_fork(after_in_child=_close_inherited)
