"""A member's side of its group: what training processes and agents call. Standard library only.

A daemon thread speaks with the keeper and connects again for ever; the training goes on unharmed
while the keeper is away. What a message means to a group is decided in the keeper, by ``groups``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import selectors
import socket
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle

from bftrainer_slurm.keeper.credentials import CredentialError, Prove, Seal, seals
from bftrainer_slurm.keeper.messages import (
    MAX_FROM_KEEPER,
    Ack,
    AckStop,
    Alone,
    Armed,
    Broken,
    Challenge,
    Change,
    Done,
    Dropped,
    FromKeeper,
    FromMember,
    Generation,
    Go,
    Held,
    Hello,
    Identity,
    Leave,
    MessageError,
    Peer,
    Ping,
    Progress,
    Ready,
    Refused,
    Released,
    Role,
    StopAt,
    StoreAt,
    Welcome,
    encode,
    good_measures,
    parse_from_keeper,
    parse_from_member,
    parse_hello,
    payload,
)
from bftrainer_slurm.keeper.protocol import GREETING, VERSION, parse_addresses

__all__ = [
    "Change",
    "Dropped",
    "DroppedError",
    "Event",
    "Generation",
    "Identity",
    "Membership",
    "MembershipError",
    "Peer",
    "RefusedError",
    "Released",
    "ReleasedError",
    "Role",
]

logger = logging.getLogger(__name__)

PING_S = 1.0
PROGRESS_S = 1.0
CONNECT_S = 5.0  # for all addresses together
SILENCE_S = 30.0  # a keeper that has said nothing for so long is gone with its host
MOVED_S = 10.0  # and so is one that may be on another host by then
BACKOFF_S = (0.1, 5.0)
_DONE_S = 2.0  # saying goodbye takes this long at most

Event = Change | Generation | Released | Dropped


class MembershipError(Exception):
    """No generation will come as things stand."""


class ReleasedError(MembershipError):
    """The planned leave is done: wait quietly for Slurm's end, and never exit 0."""


class DroppedError(MembershipError):
    """Declared lost, and nothing was said since: say ``ready`` to join anew."""


class RefusedError(MembershipError):
    """The keeper does not take this process for the trainer's owner's."""


class _LostError(Exception):
    """This connection is of no more use."""


class Membership:
    """This process's place in its group. All methods may be called from any thread.

    ``keeper`` is HOST:PORT, or several with commas between them, which are tried in turn.
    ``on_event`` is called in the membership's own thread, and must not wait for anything.

    Raises:
        MessageError: a field of ``identity`` cannot be.
        ProtocolError: ``keeper`` is no address.
    """

    def __init__(
        self,
        keeper: str,
        identity: Identity,
        prover: Prove,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        parse_hello(encode(Hello("", identity)))
        self._keeper = keeper
        self._addresses = parse_addresses(keeper)
        self._silence_s = SILENCE_S if len(self._addresses) == 1 else MOVED_S
        self._identity = identity
        self._prover = prover
        self._on_event = on_event
        self._state = threading.Condition()
        self._outgoing: list[bytes] = []
        self._connected = False
        self._stopped = False
        self._finished = threading.Event()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._thread = threading.Thread(target=self._live, name="bftrainer-member", daemon=True)
        # What is known, guarded by _state. `change` and _attention are also read without.
        self.change: Change | None = None  # announced since the last generation
        self._attention = False  # a boundary has something to look at
        self._step = -1
        self._waiting: Ready | None = None  # said, and not answered yet
        self._given: Generation | None = None  # not returned yet
        self._held: Generation | None = None  # the last one given
        self._stands_alone = False
        self._armed = self._gone = False
        self._stop_step: int | None = None
        self._released = self._dropped = False
        self._refused: str | None = None
        self._leaving = False
        self._progress: Progress | None = None
        self._progress_s = float("-inf")
        self._complaint = ""

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._thread.start()

    def ready(self, step: int, cause: str, error: str = "", lineage: int = 0) -> None:
        """Say that this process stands at a boundary and waits for a generation.

        ``step`` is the last completed one (-1: it has no state), ``cause`` is ``new``, ``change``
        or ``failed``; ``error`` then holds the last lines. ``lineage``: see ``messages.Ready``.
        """
        with self._state:
            self._step, self._dropped = step, False
            self._waiting = Ready(step, cause, error, lineage)
            self._say(self._waiting)

    def wait_generation(self, timeout_s: float | None = None) -> Generation:
        """Return the next generation; ``ready`` was said before.

        Raises:
            ReleasedError: it left as planned.
            DroppedError: it was declared lost, and has not said ``ready`` since.
            MembershipError: it was closed.
            RefusedError: it is not the trainer's owner's.
            TimeoutError: none came in time.
        """
        with self._state:
            if not self._state.wait_for(self._answered, timeout_s):
                raise TimeoutError(f"no generation within {timeout_s} s")
            if self._given is not None:
                given, self._given = self._given, None
                return given
            if self._released:
                raise ReleasedError("left as planned")
            if self._refused is not None:
                raise RefusedError(self._refused)
            if self._stopped:
                raise MembershipError("closed")
            raise DroppedError("declared lost; say ready to join anew")

    def offer_store(self, generation: int, endpoint: str) -> None:
        """Say as rank 0 where the generation's store listens (HOST:PORT).

        Raises:
            MessageError: that is no endpoint.
        """
        offer = StoreAt(endpoint, generation)
        parse_from_member(encode(offer))
        with self._state:
            self._say(offer)

    def boundary(self, step: int) -> bool:
        """Say as a worker that a step is complete; return whether to stop here and re-form.

        All of a planned change's agreement is made here: everybody stops after the same step.
        """
        self._step = step
        if not self._attention:
            return False
        with self._state:
            if self._armed and self._stop_step is None and not self._unplanned():
                return self._choose_stop(step)
            stop_step = self._stop_step
            return self._unplanned() or (stop_step is not None and step >= stop_step)

    def broken(self) -> None:
        """Say that a collective of the generation failed."""
        with self._state:
            if self._held is not None and self._waiting is None:
                self._say(Broken(self._held.number))

    def leave(self) -> None:
        """Say that SIGTERM has come, and the others should go on without this process."""
        with self._state:
            self._leaving = True
            self._say(Leave())

    def progress(self, **measures: float) -> None:
        """Tell how far the training has come; sent once a second at most, the newest wins.

        What is no finite number is left out.
        """
        told = good_measures(measures)
        with self._state:
            self._progress = Progress(told) if told else None

    def done(self) -> None:
        """Say that this process ended well, and close."""
        with self._state:
            if self._progress is not None and self._connected:
                self._say(self._progress)
            self._say(Done())
        self._stop()

    def close(self) -> None:
        """End the connection; without ``done`` the others take it for a loss."""
        self._stop()

    # Called with _state held.

    def _answered(self) -> bool:
        over = self._released or self._stopped or self._refused is not None
        return self._given is not None or over or (self._dropped and self._waiting is None)

    def _unplanned(self) -> bool:
        return self.change is not None and not self.change.planned

    def _choose_stop(self, step: int) -> bool:
        """As rank 0, say where all stop, and wait until all know: then nobody can go beyond."""
        assert self.change is not None
        number, self._stop_step = self.change.number, step + 1
        self._say(StopAt(step + 1, number))
        self._state.wait_for(lambda: self._gone or self._unplanned() or not self._connected)
        return self._unplanned()

    def _say(self, message: FromMember) -> None:
        if self._connected:
            self._outgoing.append(encode(message))
            self._wake()

    def _forget_change(self) -> None:
        self.change = self._stop_step = None
        self._armed = self._gone = self._attention = False

    # In the membership's own thread.

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is awake already
            self._wake_in.send(b".")

    def _stop(self) -> None:
        with self._state:
            self._stopped = True
            self._state.notify_all()
            self._wake()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._finished.wait(_DONE_S)

    def _live(self) -> None:
        least_s, most_s = BACKOFF_S
        backoff_s = least_s
        connect_s = CONNECT_S / len(self._addresses)
        for address in cycle(self._addresses):
            if self._over():
                break
            began_s = time.monotonic()
            try:
                with socket.create_connection(address, connect_s) as connection:
                    link = _Link(connection)
                    self._join(link)
                    self._speak(link)
            except (OSError, ValueError, CredentialError, _LostError) as error:
                self._complain(str(error))
            self._disconnected()
            if time.monotonic() - began_s > 2 * most_s:  # it was no failed attempt
                backoff_s = least_s
            if address == self._addresses[-1] and not self._over():
                self._pause(backoff_s * random.uniform(0.5, 1.0))
                backoff_s = min(most_s, 2 * backoff_s)
        self._finished.set()

    def _complain(self, why: str) -> None:
        if why != self._complaint and not self._over():
            logger.warning("bftrainer: no word with the keeper at %s: %s", self._keeper, why)
        self._complaint = why

    def _over(self) -> bool:
        with self._state:
            return self._stopped or self._released or self._refused is not None

    def _pause(self, seconds: float) -> None:
        with self._state:
            self._state.wait_for(lambda: self._stopped, seconds)

    def _disconnected(self) -> None:
        with self._state:
            self._connected = False
            self._outgoing.clear()
            if self.change is not None and self.change.planned and self._stop_step is None:
                self._forget_change()  # nobody stops for it; the keeper will say it again
            self._state.notify_all()

    def _join(self, link: _Link) -> None:
        link.send(GREETING + b"\n")
        match link.next(CONNECT_S):
            case Challenge(nonce, method):
                link.seal(self._say_hello(link, nonce, method))
            case Refused(why):
                raise _LostError(why)
            case _:
                raise _LostError("it does not speak as a keeper")
        match link.next(2 * CONNECT_S):
            case Welcome():
                pass
            case Refused(why, retry):
                if not retry:
                    with self._state:
                        self._refused = why
                        self._state.notify_all()
                raise _LostError(why)
            case _:
                raise _LostError("it does not speak as a keeper")
        with self._state:
            self._connected = True
            if self._waiting is not None:
                self._say(self._waiting)
            if self._leaving:
                self._say(Leave())

    def _say_hello(self, link: _Link, nonce: str, method: str) -> bytes:
        """Prove whose this process is; return the session's key, which only the keeper can know."""
        with self._state:
            held = self._what_is_held()
        hello = Hello("", self._identity, held, os.urandom(16).hex())
        proof = self._prover(payload(nonce, hello), method)
        link.send(encode(replace(hello, proof=proof.text)))
        return proof.key

    def _what_is_held(self) -> Held | None:
        held = self._held
        if held is None:
            return None
        return Held(held.number, held.rank, held.world, self._step, self._stands_alone)

    def _speak(self, link: _Link) -> None:
        """Pass on what comes and what is to be said, until something ends it."""
        ping_s, number = time.monotonic(), 0
        with selectors.DefaultSelector() as selector:
            selector.register(link.connection, selectors.EVENT_READ)
            selector.register(self._wake_out, selectors.EVENT_READ)
            for message in link.pending:
                self._hear(message)
            while True:
                now_s = time.monotonic()
                if now_s >= ping_s:
                    number, ping_s = number + 1, now_s + PING_S
                    link.send(encode(Ping(number)))
                link.send(*self._what_to_say(now_s))
                if self._over():
                    return
                if now_s - link.heard_s > self._silence_s:
                    raise _LostError("it is silent")
                for key, _ in selector.select(max(0.0, ping_s - time.monotonic())):
                    if key.fileobj is self._wake_out:
                        self._wake_out.recv(4096)
                    else:
                        for message in link.receive():
                            self._hear(message)

    def _what_to_say(self, now_s: float) -> list[bytes]:
        with self._state:
            if self._progress is not None and now_s - self._progress_s >= PROGRESS_S:
                self._outgoing.append(encode(self._progress))
                self._progress, self._progress_s = None, now_s
            said, self._outgoing = self._outgoing, []
        return said

    def _hear(self, message: FromKeeper) -> None:
        with self._state:
            event = self._learn(message)
            self._state.notify_all()
        if event is not None and self._on_event is not None:
            self._on_event(event)

    def _learn(self, message: FromKeeper) -> Event | None:
        match message:
            case Change():
                self._forget_change()
                self.change = message
                self._attention = True
                if message.planned:
                    self._say(Ack(message.number))
            case Armed(change) if self._agreeing(change):
                self._armed = True
            case StopAt(step, change) if self._agreeing(change):
                self._stop_step = step
                self._say(AckStop(change))
            case Go(change) if self._agreeing(change):
                self._gone = True
            case Generation():
                self._forget_change()
                self._waiting = None
                self._given = self._held = message
                self._stands_alone = message.alone
            case Alone():
                self._stands_alone = True
            case Released():
                self._released = True
            case Dropped(why):
                self._held = None
                if self._waiting is not None:
                    return None  # it stands at a boundary, and joins anew by itself
                self._forget_change()
                self._dropped = self._attention = True
                self.change = Change(0, planned=False, why=why)
            case _:
                return None
        return message if isinstance(message, Event) else None

    def _agreeing(self, change: int) -> bool:
        return self.change is not None and self.change.planned and self.change.number == change


class _Link:
    """One connection to the keeper, line by line."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.heard_s = time.monotonic()
        _links.add(self)
        self.pending: list[FromKeeper] = []  # came together with what ``next`` waited for
        self._buffer = bytearray()
        self._own_seal: Seal | None = None
        self._keepers_seal: Seal | None = None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def seal(self, key: bytes) -> None:
        """From now on both sides say nothing without a seal."""
        self._keepers_seal, self._own_seal = seals(key)

    def send(self, *lines: bytes) -> None:
        """Send lines, each with its end."""
        if lines:
            said = lines if self._own_seal is None else map(self._own_seal.close, lines)
            self.connection.settimeout(CONNECT_S)
            self.connection.sendall(b"".join(said))

    def next(self, timeout_s: float) -> FromKeeper:
        """Wait for one message, where no more than one can come."""
        deadline_s = time.monotonic() + timeout_s
        while not self.pending:
            self.pending = self.receive(deadline_s - time.monotonic())
        return self.pending.pop(0)

    def receive(self, timeout_s: float = CONNECT_S) -> list[FromKeeper]:
        """Return the messages that have come in whole, after waiting for some bytes.

        Raises:
            TimeoutError: nothing came.
            ConnectionError: it has ended.
        """
        if timeout_s <= 0:
            raise TimeoutError
        self.connection.settimeout(timeout_s)
        data = self.connection.recv(65_536)
        if not data:
            raise ConnectionResetError("the keeper hung up")
        self.heard_s = time.monotonic()
        self._buffer += data
        *lines, rest = self._buffer.split(b"\n")
        if len(rest) > MAX_FROM_KEEPER:
            raise MessageError("the keeper's line is too long")
        self._buffer = rest
        return [self._opened(bytes(line)) for line in lines]

    def _opened(self, line: bytes) -> FromKeeper:
        if self._keepers_seal is None and line.startswith(b"error "):
            raise _LostError(f"it is older than version {VERSION}, which this process speaks")
        if self._keepers_seal is None:
            return parse_from_keeper(line)
        if not line.startswith(b"{"):
            return parse_from_keeper(self._keepers_seal.open(line))
        match parse_from_keeper(line):
            case Refused(why):  # anybody could say so: it is final only with the seal
                return Refused(why, retry=True)
        raise _LostError("it does not know the session's key")


# A forked child (a worker of a DataLoader) would keep the connection open beyond its parent's end,
# and a loss would be noticed only by silence.
_links: weakref.WeakSet[_Link] = weakref.WeakSet()


def _close_inherited() -> None:
    for link in _links:
        link.connection.close()


os.register_at_fork(after_in_child=_close_inherited)
