"""One connection: its first line, the proof of who speaks, its lines, its user's limits.

A first line that is no hello is a request, which ``server`` answers, as it does the controller's.
What a trainer's process says means is decided in ``registry``.
"""

from __future__ import annotations

import asyncio
import hmac
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from bftrainer_slurm.keeper.credentials import CONTROLLER, NONCE, challenge
from bftrainer_slurm.keeper.limits import MAX_KEPT, Share, address_of
from bftrainer_slurm.keeper.messages import FromKeeper, encode
from bftrainer_slurm.keeper.protocol import (
    MAX_LINE,
    MAX_MESSAGE,
    VERSION,
    ProtocolError,
    write_line,
)

if TYPE_CHECKING:
    from bftrainer_slurm.keeper.registry import Registry, Trainer

MAX_MESSAGES = 1_000  # of one member between two sweeps
MAX_UNSENT = 2 * 1024 * 1024  # bytes; a member with more is dropped
_VERSIONS = f"the keeper speaks version {VERSION}: install one BFTrainer on nodes and its host"

# Takes over a connection with its first request, which is the controller's if that is true.
Serve = Callable[[bytes, bool, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Session(asyncio.Protocol):
    """One connection; it has no ``trainer`` until it is a member's. ``who`` may be ``proven``."""

    address: str  # from ``connection_made`` on

    def __init__(self, registry: Registry, key: int) -> None:
        self.key = key
        self.trainer: Trainer | None = None
        self.opened_s = self.heard_s = asyncio.get_running_loop().time()
        self.share = Share(-1, self.opened_s)  # a share of its own until its user is known
        self.progress_s = -math.inf
        self.who = ""  # who says hello
        self.proven = False
        self._wanted = b""  # the line that proves it
        self._messages = self._kept = 0
        self._registry = registry
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._longest = MAX_LINE + 1
        self._over = False  # nothing more of what the member says counts

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

    def resume_writing(self) -> None:
        """The member has read nearly all that waited for it: asyncio calls this."""
        self._count_kept()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell that the connection has ended."""
        self._end()

    def _end(self) -> None:
        """Nothing comes any more."""
        self._transport, self._over = None, True
        self._buffer.clear()
        self._count_kept()
        self._registry.closed(self)

    def belong_to(self, trainer: Trainer) -> None:
        """It is a member of this trainer."""
        self.trainer, self.share = trainer, trainer.share
        self.share.add(trainer.array)
        self.share.kept += self._kept

    def swept(self) -> None:
        """A second has passed."""
        self._messages = 0
        self._count_kept()

    def send(self, message: FromKeeper) -> None:
        """Send a message; end the connection of a member that does not read."""
        self._write(encode(message))

    def _write(self, line: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(line)
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

    def give_up(self, kind: str, why: str, answer: bytes = b"") -> None:
        """End the connection at once, and count why; who may try again gets an ``answer``."""
        if self._over:
            return
        self._over = True
        origin = f"{self.address} of trainer {self.who}" if self.proven else self.address
        asked = f"to {self.who}: " if answer and self.who else ""
        self._registry.refusals.add(kind, origin, asked + why)
        if answer:
            self._write(answer)
            self.hang_up()
        elif self._transport is not None:
            self._transport.abort()

    def _count_kept(self) -> None:
        """Count the bytes that the keeper holds for this user."""
        unsent = 0 if self._transport is None else self._transport.get_write_buffer_size()
        kept = len(self._buffer) + unsent
        self.share.kept += kept - self._kept
        grows, self._kept = kept > self._kept, kept
        if grows and self.share.kept > MAX_KEPT:
            self.give_up("memory", "this user's members send unfinished lines, or do not read")

    def _take_lines(self) -> None:
        self.heard_s = asyncio.get_running_loop().time()
        while not self._over:
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
            if self.proven and self.who == CONTROLLER:
                self._hand_over(line)
            elif self.proven:
                self._registry.heard(self, line)
            elif self.who:
                self._check(line)
            else:
                self._begin(line)
        except ProtocolError as error:
            answer = f"refused {error}\n".encode("ascii", "replace")
            self.give_up(error.kind, str(error), answer if self.trainer is None else b"")

    def _begin(self, line: bytes) -> None:
        """Take a first line."""
        match line.decode("ascii", "replace").split():
            case ["hello", version, who, nonce] if version == str(VERSION):
                if not NONCE.fullmatch(nonce):
                    raise ProtocolError("not a hello")
                secret = self._registry.secret(who)
                answer, self._wanted = challenge(secret, who, nonce)
                self.who = who
                self._write(answer)
            case ["hello", *_]:
                raise ProtocolError(_VERSIONS, "version")
            case ["member", *_]:  # older ones read JSON alone
                answer = write_line({"refused": {"why": _VERSIONS, "retry": True}})
                self.give_up("version", _VERSIONS, answer)
            case _:
                self._hand_over(line)

    def _check(self, line: bytes) -> None:
        """Take the line that shall prove who speaks."""
        if not hmac.compare_digest(line, self._wanted):
            raise ProtocolError("the proof is wrong", "bad_proof")
        self.proven, self._longest = True, MAX_MESSAGE

    def _hand_over(self, request: bytes) -> None:
        """Let ``serve`` have the connection: for this session it has ended."""
        transport, more = self._transport, bytes(self._buffer)
        if transport is None:
            return
        self._end()
        reader = asyncio.StreamReader(limit=MAX_LINE)  # a stranger may send on without end
        serve = partial(self._registry.serve, request, self.proven)
        protocol = asyncio.StreamReaderProtocol(reader, serve)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if more:
            protocol.data_received(more)
