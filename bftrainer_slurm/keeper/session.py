"""One connection: its first line, and a member's proof, its lines in and out, its user's limits.

A member's greeting begins a session; any other first line is a request, which ``server`` answers.
What a member's line means is decided in ``registry``.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from bftrainer_slurm.keeper.credentials import CredentialError, Seal, seals
from bftrainer_slurm.keeper.gate import NotAdmittedError
from bftrainer_slurm.keeper.limits import MAX_KEPT, Share, address_of
from bftrainer_slurm.keeper.messages import (
    MAX_FROM_MEMBER,
    Challenge,
    FromKeeper,
    Hello,
    Refused,
    encode,
    parse_hello,
)
from bftrainer_slurm.keeper.protocol import GREETING, MAX_LINE, VERSION, ProtocolError

if TYPE_CHECKING:
    from bftrainer_slurm.keeper.registry import Registry

MAX_HELLO = 8_192  # bytes of a line before the proof
MUCH = 2_048  # bytes; if more come while a proof is checked, reading pauses
MAX_MESSAGES = 1_000  # of one member between two sweeps
MAX_UNSENT = 2 * 1024 * 1024  # bytes; a member with more is dropped


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Session(asyncio.Protocol):
    """One connection; ``array`` is -1 until it has proven itself as a member's.

    ``serve`` takes it over if its first line is a request.
    """

    address: str  # from ``connection_made`` on

    def __init__(self, registry: Registry, key: int, serve: Serve) -> None:
        self.key = key
        self.array = -1
        self.opened_s = self.heard_s = asyncio.get_running_loop().time()
        self.share = Share(-1, self.opened_s)  # a share of its own until its user is known
        self.progress_s = -math.inf
        self._messages = self._kept = 0
        self._serve = serve
        self._registry = registry
        self.challenge: Challenge | None = None  # until the member has greeted
        self._own_seal: Seal | None = None  # until the member has proven itself
        self._members_seal: Seal | None = None
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._longest = MAX_LINE + 1
        self._over = False  # nothing more of what the member says counts
        self._checking: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first line."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.address = address_of(transport.get_extra_info("peername"))
        self._registry.entered(self)

    def data_received(self, data: bytes) -> None:
        """Handle the lines that have come."""
        self._buffer += data
        self._take_lines()
        if self._checking is not None and len(self._buffer) > MUCH and self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The member has read nearly all that waited for it: asyncio calls this."""
        self._count_kept()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell that the connection has ended."""
        if self._checking is not None:
            self._checking.cancel()
        self._end()

    def _end(self) -> None:
        """Nothing comes any more."""
        self._transport, self._over = None, True
        self._buffer.clear()
        self._count_kept()
        self._registry.closed(self)

    def belong_to(self, share: Share, array: int) -> None:
        """The member has proven that it belongs to this user's trainer."""
        share.add(array)
        self.array, self.share = array, share
        self.share.kept += self._kept
        self._longest = MAX_FROM_MEMBER

    def swept(self) -> None:
        """A second has passed."""
        self._messages = 0
        self._count_kept()

    def send(self, message: FromKeeper) -> None:
        """Send a message; end the connection of a member that does not read."""
        if self._transport is None or self._transport.is_closing():
            return
        line = encode(message)
        self._transport.write(line if self._own_seal is None else self._own_seal.close(line))
        if self._transport.get_write_buffer_size() > MAX_UNSENT:
            self.give_up("slow", "it does not read")
        self._count_kept()

    def hang_up(self) -> None:
        """End the connection; what the member has not let us send yet is dropped."""
        self._over = True
        if self._transport is not None:
            if self._transport.get_write_buffer_size():
                self._transport.abort()
            else:
                self._transport.close()

    def give_up(self, kind: str, why: str) -> None:
        """End the connection at once, and count why."""
        if self._over:
            return
        self._over = True
        self._refuse(kind, why)
        if self._transport is not None:
            self._transport.abort()

    def _refuse(self, kind: str, why: str) -> None:
        origin = self.address if self.array < 0 else f"{self.address} of trainer {self.array}"
        self._registry.refusals.add(kind, origin, why)

    def _count_kept(self) -> None:
        """Count the bytes that the keeper holds for this user."""
        unsent = 0 if self._transport is None else self._transport.get_write_buffer_size()
        kept = len(self._buffer) + unsent
        self.share.kept += kept - self._kept
        grows, self._kept = kept > self._kept, kept
        if grows and self.share.kept > MAX_KEPT:
            self.give_up("memory", "this user's members send unfinished lines, or do not read")

    def _take_lines(self) -> None:
        """Handle the whole lines; while a proof is checked they wait."""
        self.heard_s = asyncio.get_running_loop().time()
        while not self._over and self._checking is None:
            end = self._buffer.find(b"\n")
            if (end if end >= 0 else len(self._buffer)) >= self._longest:
                self.give_up("oversized", f"a message of more than {self._longest} bytes")
            elif end < 0:
                break
            else:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._take(line)
        self._count_kept()

    def _take(self, line: bytes) -> None:
        self._messages += 1
        if self.share.floods(self.heard_s) or self._messages > MAX_MESSAGES:
            why = f"more than {MAX_MESSAGES} messages a second, or too many of this user's members"
            self.give_up("flood", why)
            return
        try:
            if self.challenge is None:
                self._begin(line)
            elif self._members_seal is None:
                hello = parse_hello(line)
                self._checking = asyncio.ensure_future(self._admit(self.challenge, hello))
            else:
                self._registry.heard(self, self._members_seal.open(line))
        except ProtocolError as error:
            self.give_up(error.kind, str(error))
        except CredentialError as error:
            self.give_up("forged", str(error))

    def _begin(self, line: bytes) -> None:
        if line == GREETING:
            self._registry.check_place()
            self.challenge, self._longest = self._registry.gate.challenge(), MAX_HELLO
            self.send(self.challenge)
        elif line.startswith(b"member"):  # members newer than this can read the answer
            why = (
                f"the keeper speaks version {VERSION}: install one BFTrainer on nodes and its host"
            )
            self._refuse("version", why)
            self.send(Refused(why, retry=True))
            self.hang_up()
        elif self._transport is not None:
            self._hand_over(self._transport, line + b"\n" + self._buffer)

    def _hand_over(self, transport: asyncio.Transport, said: bytes) -> None:
        """Let ``serve`` have the connection: for this session it has ended."""
        self._end()
        reader = asyncio.StreamReader(limit=MAX_LINE)
        protocol = asyncio.StreamReaderProtocol(reader, self._serve)
        transport.set_protocol(protocol)
        transport.resume_reading()
        protocol.connection_made(transport)
        protocol.data_received(said)

    async def _admit(self, challenge: Challenge, hello: Hello) -> None:
        try:
            key = await self._registry.gate.admit(challenge, hello, self.address)
            self._own_seal, self._members_seal = seals(key)
            if self._transport is not None:
                self._registry.proven(self, hello)
        except NotAdmittedError as error:
            if error.key:
                self._own_seal, self._members_seal = seals(error.key)
            self._refuse(error.kind, f"to trainer {hello.identity.array}: {error}")
            self.send(Refused(str(error), error.retry))
            self.hang_up()
        finally:
            self._checking = None
        if self._transport is not None:
            self._transport.resume_reading()
        self._take_lines()
