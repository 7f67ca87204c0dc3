"""A member's side of its group: what training processes and agents call. Standard library only.

A daemon thread talks to the keeper, and connects again for ever; training goes on while the keeper
is away. What a message leads to is decided in the keeper, by ``rendezvous``.
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
from typing import TypeVar

from bftrainer_slurm.keeper.credentials import CredentialError, Prove, Seal, seals
from bftrainer_slurm.keeper.effort import Effort
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
    Finished,
    Finishing,
    FromKeeper,
    FromMember,
    Generation,
    Go,
    Held,
    Hello,
    Identity,
    Leave,
    Measured,
    Ping,
    Ready,
    Refused,
    Released,
    Role,
    StopAt,
    StoreAt,
    Welcome,
    Working,
    encode,
    good_measures,
    parse_from_keeper,
    parse_from_member,
    parse_hello,
    payload,
)
from bftrainer_slurm.keeper.protocol import GREETING, ProtocolError, parse_addresses

logger = logging.getLogger(__name__)

PING_S = 1.0
PROGRESS_S = 1.0
CONNECT_S = 5.0  # for all addresses together
KEEPER_SILENCE_S = 30.0  # a keeper that is silent for longer is gone with its host
MOVED_S = 10.0  # the same, if the keeper may have moved to another host
BACKOFF_S = (0.1, 5.0)
_DONE_S = 2.0  # saying goodbye takes this long at most

Notice = Change | Generation | Released | Finished | Dropped
_Kind = TypeVar("_Kind", Challenge, Welcome)


class MembershipError(Exception):
    """No generation will come for this process as it is now."""


class ReleasedError(MembershipError):
    """The planned leave is done: wait for Slurm to end this process, and never exit with 0."""


class FinishedError(MembershipError):
    """The training has finished without this process, which ends with 0 and begins nothing."""


class DroppedError(MembershipError):
    """The keeper has declared this process lost: call ``ready`` to join again."""


class RefusedError(MembershipError):
    """The keeper does not accept that this process belongs to the trainer's owner."""


class Membership:
    """This process's place in its group. All methods may be called from any thread.

    ``keeper`` is HOST:PORT, or several with commas between them, which are tried in turn.
    ``on_notice`` is called in the membership's own thread, and must not wait for anything.

    Raises:
        ProtocolError: a field of ``identity`` is invalid, or ``keeper`` is not an address.
    """

    def __init__(
        self,
        keeper: str,
        identity: Identity,
        prover: Prove,
        on_notice: Callable[[Notice], None] | None = None,
    ) -> None:
        parse_hello(encode(Hello("", identity)))
        self._keeper = keeper
        self._addresses = parse_addresses(keeper)
        self._silence_s = KEEPER_SILENCE_S if len(self._addresses) == 1 else MOVED_S
        self._identity = identity
        self._prover = prover
        self._on_notice = on_notice
        self._state = threading.Condition()
        self._outgoing: list[bytes] = []
        # Whether the keeper answers, as far as is known: its silence is noticed after a while.
        self.connected = False
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._thread = threading.Thread(target=self._live, name="bftrainer-member", daemon=True)
        # What is known, guarded by _state. `change` is also read without it.
        self.change: Change | None = None  # announced since the last generation
        self._waiting: Ready | None = None  # said, and not answered yet
        self._given: Generation | None = None  # not returned yet
        self._held: Held | None = None  # the last one given
        self._armed = self._gone = False
        self._stop_step: int | None = None
        self._over: MembershipError | None = None  # why no generation will ever come
        self._dropped = False
        self._leaving = self._finishing = False
        self._progress: Measured | None = None
        self._progress_s = float("-inf")
        self._effort: Effort | None = None  # of the thread that trains
        self._complaint = ""

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._thread.start()

    def ready(self, step: int, cause: str, error: str = "", lineage: int = 0) -> None:
        """Say that this process is at a boundary and waits for a generation.

        ``step`` is the last completed one (-1: it has no state), ``cause`` is ``new``, ``change``
        or ``failed``. ``error``: the last lines of a failure. ``lineage``: see ``messages.Ready``.
        """
        with self._state:
            self._dropped = False
            self._effort = Effort()
            self._waiting = Ready(step, cause, error, lineage)
            self._say(self._waiting)

    def wait_generation(self, timeout_s: float | None = None) -> Generation:
        """Wait for the next generation and return it; call ``ready`` before.

        Raises:
            ReleasedError: this process has left as planned.
            FinishedError: the training has finished.
            DroppedError: it was declared lost, and has not called ``ready`` since.
            MembershipError: it was closed.
            RefusedError: it does not belong to the trainer's owner.
            TimeoutError: no generation came in time.
        """
        with self._state:
            if not self._state.wait_for(self._answered, timeout_s):
                raise TimeoutError(f"no generation within {timeout_s} s")
            if self._given is not None:
                given, self._given = self._given, None
                return given
            raise self._over or DroppedError("declared lost; say ready to join anew")

    def offer_store(self, generation: int, endpoint: str) -> None:
        """Say as rank 0 where the generation's store listens (HOST:PORT).

        Raises:
            ProtocolError: ``endpoint`` is invalid.
        """
        offer = StoreAt(endpoint, generation)
        parse_from_member(encode(offer))
        with self._state:
            self._say(offer)

    def boundary(self, step: int) -> bool:
        """Say as a worker that a step is complete; return whether to stop here and re-form.

        Here the members agree on a planned change: everybody stops after the same step.
        """
        if self.change is None:
            return self._over is not None
        with self._state:
            if self._armed and self._stop_step is None and not self._unplanned():
                return self._choose_stop(step)
            stop_step = self._stop_step
            return self._unplanned() or (stop_step is not None and step >= stop_step)

    def broken(self) -> None:
        """Say that a collective of the generation failed."""
        with self._state:
            if self._held is not None and self._waiting is None:
                self._say(Broken(self._held.generation))

    def leave(self) -> None:
        """Say that SIGTERM has come, and the others should go on without this process."""
        with self._state:
            self._leaving = True
            self._say(Leave())

    def finishing(self) -> None:
        """Say as an agent that its processes have ended well, and it waits for the others'."""
        with self._state:
            self._finishing = True
            self._say(Finishing())

    def progress(self, **measures: float) -> None:
        """Report progress; it is sent once a second at most, and the newest report wins.

        Invalid measures are left out: see ``messages.good_measures``.
        """
        told = good_measures(measures)
        with self._state:
            self._progress = Measured(told) if told else None

    def done(self) -> None:
        """Say that this process ended well, and close."""
        with self._state:
            if self._progress is not None:
                self._say(self._progress)
            self._say(Done())
        self.close()

    def close(self) -> None:
        """End the connection; without ``done`` the others take it for a loss."""
        self._end(MembershipError("closed"))
        self._wake()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_DONE_S)

    # Called with _state held.

    def _answered(self) -> bool:
        dropped = self._dropped and self._waiting is None
        return self._given is not None or self._over is not None or dropped

    def _unplanned(self) -> bool:
        return self.change is not None and not self.change.planned

    def _choose_stop(self, step: int) -> bool:
        """As rank 0, say where all stop, and wait until all know it: so nobody can go further."""
        assert self.change is not None
        number, self._stop_step = self.change.number, step + 1
        self._say(StopAt(step + 1, number))
        self._state.wait_for(lambda: self._gone or self._unplanned() or not self.connected)
        return self._unplanned()

    def _holds_up(self) -> bool:
        """Whether the others may wait for this worker."""
        is_worker = self._identity.role is Role.WORKER
        return is_worker and self.change is not None and self._waiting is None

    def _say(self, message: FromMember) -> None:
        if self.connected:
            self._outgoing.append(encode(message))
            self._wake()

    def _forget_change(self) -> None:
        self.change = self._stop_step = None
        self._armed = self._gone = False

    def _end(self, why: MembershipError) -> None:
        with self._state:
            self._over = self._over or why
            self._state.notify_all()

    # In the membership's own thread.

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is awake already
            self._wake_in.send(b".")

    def _live(self) -> None:
        try:
            self._stay_connected()
        except Exception as error:
            logger.exception("bftrainer: this process takes no part in its trainer any more")
            self._disconnected()
            self._end(MembershipError(f"it ended with {error!r}"))

    def _stay_connected(self) -> None:
        least_s, most_s = BACKOFF_S
        backoff_s = least_s
        connect_s = CONNECT_S / len(self._addresses)
        for address in cycle(self._addresses):
            if self._over is not None:
                break
            began_s = time.monotonic()
            try:
                with socket.create_connection(address, connect_s) as connection:
                    link = Link(connection)
                    self._join(link)
                    self._speak(link)
            except (OSError, ValueError, CredentialError) as error:
                self._complain(str(error))
            self._disconnected()
            if time.monotonic() - began_s > 2 * most_s:  # it did not fail at once
                backoff_s = least_s
            if address == self._addresses[-1] and self._over is None:
                with self._state:
                    pause_s = backoff_s * random.uniform(0.5, 1.0)
                    self._state.wait_for(lambda: self._over is not None, pause_s)
                backoff_s = min(most_s, 2 * backoff_s)

    def _complain(self, why: str) -> None:
        if why != self._complaint and self._over is None:
            logger.warning("bftrainer: no connection to the keeper at %s: %s", self._keeper, why)
        self._complaint = why

    def _disconnected(self) -> None:
        with self._state:
            self.connected = False
            self._outgoing.clear()
            if self.change is not None and self.change.planned and self._stop_step is None:
                self._forget_change()  # nobody stops for it; the keeper will say it again
            self._state.notify_all()

    def _join(self, link: Link) -> None:
        """Prove who owns this process, and hear that the keeper believes it."""
        link.send(GREETING + b"\n")
        challenge = self._expect(Challenge, link, CONNECT_S)
        hello = Hello("", self._identity, self._held, os.urandom(16).hex())
        proof = self._prover(payload(challenge.nonce, hello), challenge.method)
        link.send(encode(replace(hello, proof=proof.text)))
        link.seal(proof.key)
        self._expect(Welcome, link, 2 * CONNECT_S)
        with self._state:
            self.connected = True
            if self._waiting is not None:
                self._say(self._waiting)
            if self._leaving:
                self._say(Leave())
            if self._finishing:
                self._say(Finishing())

    def _expect(self, kind: type[_Kind], link: Link, timeout_s: float) -> _Kind:
        """Wait for one message of this kind. Raises ConnectionError if another one comes."""
        message = link.next(timeout_s)
        if isinstance(message, kind):
            return message
        if not isinstance(message, Refused):
            raise ConnectionError("what answers there is not a keeper")
        if not message.retry:
            self._end(RefusedError(message.why))
        raise ConnectionError(message.why)

    def _speak(self, link: Link) -> None:
        """Send and receive messages until something ends the connection."""
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
                over = self._over is not None  # first: what was said before that is sent
                link.send(*self._what_to_say(now_s))
                if over:
                    return
                if now_s - link.heard_s > self._silence_s:
                    raise ConnectionError("it is silent")
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
            if self._effort is not None and self._effort.has_worked(now_s) and self._holds_up():
                self._outgoing.append(encode(Working()))
            said, self._outgoing = self._outgoing, []
        return said

    def _hear(self, message: FromKeeper) -> None:
        with self._state:
            notice = self._learn(message)
            self._state.notify_all()
        if notice is not None and self._on_notice is not None:
            self._on_notice(notice)

    def _learn(self, message: FromKeeper) -> Notice | None:
        match message:
            case Change():
                self._forget_change()
                self.change = message
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
                self._given = message
                self._held = Held(message.number, message.rank, message.world, message.alone)
            case Alone():
                self._held = self._held and replace(self._held, alone=True)
            case Released():
                self._end(ReleasedError("left as planned"))
            case Finished():
                self._end(FinishedError("the training has finished"))
            case Dropped(why):
                self._held = None
                if self._waiting is not None:
                    return None  # it waits at a boundary, and joins again by itself
                self._forget_change()
                self._dropped = True
                self.change = Change(0, planned=False, why=why)
            case _:
                return None
        return message if isinstance(message, Notice) else None

    def _agreeing(self, change: int) -> bool:
        return self.change is not None and self.change.planned and self.change.number == change


class Link:
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
        """From now on both sides seal each line."""
        self._keepers_seal, self._own_seal = seals(key)

    def send(self, *lines: bytes) -> None:
        """Send lines; each has its line end."""
        if lines:
            said = lines if self._own_seal is None else map(self._own_seal.close, lines)
            self.connection.settimeout(CONNECT_S)
            self.connection.sendall(b"".join(said))

    def next(self, timeout_s: float) -> FromKeeper:
        """Wait for one message; others that come with it stay in ``pending``."""
        deadline_s = time.monotonic() + timeout_s
        while not self.pending:
            self.pending = self.receive(deadline_s - time.monotonic())
        return self.pending.pop(0)

    def receive(self, timeout_s: float = CONNECT_S) -> list[FromKeeper]:
        """Wait for some bytes; return the messages that are complete.

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
            raise ProtocolError("the keeper's line is too long")
        self._buffer = rest
        return [self._opened(bytes(line)) for line in lines]

    def _opened(self, line: bytes) -> FromKeeper:
        if self._keepers_seal is not None and not line.startswith(b"{"):
            return parse_from_keeper(self._keepers_seal.open(line))
        message = parse_from_keeper(line)
        if isinstance(message, Refused):  # anybody could send this: only a sealed one is final
            return replace(message, retry=True)
        if self._keepers_seal is not None:
            raise ConnectionError("it does not know the session's key")
        return message


# A forked child (a worker of a DataLoader) would keep the connection open beyond its parent's end,
# and a loss would be noticed only by silence.
_links: weakref.WeakSet[Link] = weakref.WeakSet()


def _close_inherited() -> None:
    for link in _links:
        link.connection.close()


os.register_at_fork(after_in_child=_close_inherited)
