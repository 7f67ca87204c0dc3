"""One member's connection: its proof, its lines in and out, and what its user may have of us.

What a line means is decided in ``sessions``; lines are looked at in turns, one of each user.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bftrainer_slurm.keeper.credentials import CredentialError, Seal, seals
from bftrainer_slurm.keeper.messages import (
    MAX_FROM_MEMBER,
    FromKeeper,
    Hello,
    MessageError,
    Refused,
    encode,
    parse_hello,
)
from bftrainer_slurm.keeper.vouchers import NotAdmittedError

if TYPE_CHECKING:
    from bftrainer_slurm.keeper.sessions import Sessions

MAX_HELLO = 8_192  # bytes, before a proof was seen
MUCH = 2_048  # bytes; where they hold a message, no more are read before it was its turn
MAX_MESSAGES = 1_000  # of one member between two sweeps
MAX_UNSENT = 2 * 1024 * 1024  # bytes; who reads slower is dropped
# Of one trainer:
MAX_MEMBERS_OF_RUN = 4_096
# Of one user:
MAX_RUNS = 1_000
MAX_MEMBERS = 10_000
MAX_MESSAGES_OF_USER = 30_000  # between two sweeps
MAX_KEPT = 128 * 1024 * 1024  # bytes that wait to be sent, or to be looked at


@dataclass(slots=True)
class Share:
    """What one user has of the keeper now."""

    user: int
    members: int = 0
    of_run: Counter[int] = field(default_factory=Counter)  # members, by trainer
    messages: int = 0  # since the last sweep
    kept: int = 0  # bytes

    def check(self, array: int) -> None:
        """Check that one more member of a trainer may join. Raises NotAdmittedError."""
        full = (
            (self.of_run[array] >= MAX_MEMBERS_OF_RUN, "this trainer has too many members"),
            (self.members >= MAX_MEMBERS, "this user has too many members"),
            (not self.of_run[array] and len(self.of_run) > MAX_RUNS, "too many trainers"),
        )
        for is_full, why in full:
            if is_full:
                raise NotAdmittedError("too_many", why, True)

    def gain(self, array: int) -> None:
        """A member of this trainer has joined."""
        self.members += 1
        self.of_run[array] += 1

    def lose(self, array: int) -> None:
        """A member of this trainer has gone."""
        self.members -= 1
        self.of_run[array] -= 1
        if not self.of_run[array]:
            del self.of_run[array]


class Session(asyncio.Protocol):
    """One member's connection from its challenge on; ``array`` is -1 until it has proven itself."""

    def __init__(self, sessions: Sessions, key: int, address: str) -> None:
        self.key = key
        self.array = -1
        self.share = Share(-1)  # its own, until it is known whose it is
        self.opened_s = self.heard_s = asyncio.get_running_loop().time()
        self.progress_s = -math.inf
        self._messages = self._kept = 0
        self._address = address
        self._whose: Hashable = address
        self._sessions = sessions
        self._challenge = sessions.gate.challenge()
        self._own_seal: Seal | None = None  # until the member has proven itself
        self._members_seal: Seal | None = None
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._longest = MAX_HELLO
        self._waits = False  # for its turn
        self._checking: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Challenge the member."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.send(self._challenge)

    def data_received(self, data: bytes) -> None:
        """Take what has come; its lines are looked at when it is this user's turn."""
        self._buffer += data
        self.heard_s = asyncio.get_running_loop().time()
        whole = b"\n" in self._buffer
        if len(self._buffer) >= self._longest and not whole:
            self.give_up("oversized", f"a message of more than {self._longest} bytes")
        elif len(self._buffer) > MUCH and whole and self._transport is not None:
            self._transport.pause_reading()
        self._count_kept()
        self._await_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell that the connection has ended."""
        self._transport = None
        self.share.kept -= self._kept
        if self._checking is not None:
            self._checking.cancel()
        self._sessions.closed(self)

    def belong_to(self, share: Share, array: int) -> None:
        """The member has proven that it is of this user's trainer."""
        share.gain(array)
        self.array, self.share, self._whose = array, share, share.user
        self.share.kept += self._kept
        self._longest = MAX_FROM_MEMBER

    def swept(self) -> None:
        """A second has passed."""
        self._messages = self.share.messages = 0
        self._count_kept()

    def send(self, message: FromKeeper) -> None:
        """Send a message; who does not read is given up."""
        if self._transport is None or self._transport.is_closing():
            return
        line = encode(message)
        self._transport.write(line if self._own_seal is None else self._own_seal.close(line))
        if self._transport.get_write_buffer_size() > MAX_UNSENT:
            self.give_up("slow", "it does not read")
        self._count_kept()

    def hang_up(self) -> None:
        """End the connection when all is sent."""
        if self._transport is not None:
            if self._transport.get_write_buffer_size():
                self._transport.abort()
            else:
                self._transport.close()

    def give_up(self, kind: str, why: str) -> None:
        """End the connection at once, and count why."""
        if self._transport is not None and not self._transport.is_closing():
            self._refuse(kind, why)
            self._transport.abort()

    def _refuse(self, kind: str, why: str) -> None:
        origin = self._address if self.array < 0 else f"{self._address} of trainer {self.array}"
        self._sessions.refusals.add(kind, origin, why)

    def _count_kept(self) -> None:
        """Keep account of the bytes that the keeper holds for this user."""
        if self._transport is None:
            return
        kept = len(self._buffer) + self._transport.get_write_buffer_size()
        self.share.kept += kept - self._kept
        grows, self._kept = kept > self._kept, kept
        if grows and self.share.kept > MAX_KEPT:
            self.give_up("memory", "this user's members do not read, or say half of something")

    def _await_turn(self) -> None:
        if not self._waits and self._checking is None and b"\n" in self._buffer:
            self._waits = True
            self._sessions.turns.add(self._whose, self._take_line)

    def _take_line(self) -> None:
        self._waits = False
        if self._transport is None or self._transport.is_closing():
            return
        end = self._buffer.index(b"\n")
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        if len(self._buffer) <= MUCH or b"\n" not in self._buffer:
            self._transport.resume_reading()
        if len(line) >= self._longest:
            self.give_up("oversized", f"a message of more than {self._longest} bytes")
        else:
            self._take(line)
        self._count_kept()
        self._await_turn()

    def _take(self, line: bytes) -> None:
        self._messages += 1
        self.share.messages += 1
        if self._messages > MAX_MESSAGES or self.share.messages > MAX_MESSAGES_OF_USER:
            of_all = f", or {MAX_MESSAGES_OF_USER} of all of this user's members"
            self.give_up("flood", f"more than {MAX_MESSAGES} messages a second{of_all}")
            return
        try:
            if self._members_seal is None:
                hello = parse_hello(line)
                self._checking = asyncio.ensure_future(self._admit(hello))
            else:
                self._sessions.heard(self, self._members_seal.open(line))
        except MessageError as error:
            self.give_up("malformed", str(error))
        except CredentialError as error:
            self.give_up("forged", str(error))

    async def _admit(self, hello: Hello) -> None:
        try:
            key = await self._sessions.gate.admit(self._challenge, hello, self._address)
            self._own_seal, self._members_seal = seals(key)
            if self._transport is not None:
                self._sessions.proven(self, hello)
        except NotAdmittedError as error:
            if error.key:
                self._own_seal, self._members_seal = seals(error.key)
            self._refuse(error.kind, f"to trainer {hello.identity.array}: {error}")
            self.send(Refused(str(error), error.retry))
            self.hang_up()
        finally:
            self._checking = None
        self._await_turn()
