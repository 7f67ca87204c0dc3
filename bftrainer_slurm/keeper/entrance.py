"""The first line of a connection: a member's greeting begins a session, any other is a request.

A datagram says that something was submitted, and nothing else. Anybody can send one, and it may
get lost. It leads to a hint, a few times a second at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bftrainer_slurm.keeper.fairness import Waiting, address_of
from bftrainer_slurm.keeper.messages import Refused, encode
from bftrainer_slurm.keeper.protocol import GREETING, MAX_LINE, VERSION
from bftrainer_slurm.keeper.registry import Registry

FIRST_LINE_S = 5.0

_ANNOUNCED = b"announced\n"
_PAUSE_S = 0.2  # srun and salloc send one just before they submit; many may submit at once


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Announcements(asyncio.DatagramProtocol):
    """Calls ``tell`` a moment after a datagram, once for all that come in that moment."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._waits = False

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Take a datagram; one with any other text is ignored."""
        if data == _ANNOUNCED and not self._waits:
            self._waits = True
            asyncio.get_running_loop().call_later(_PAUSE_S, self._pass_on)

    def _pass_on(self) -> None:
        self._waits = False
        self._tell()


class Entrance(asyncio.Protocol):
    """Waits for a connection's first line, and hands the connection on.

    ``serve`` answers a request, ``registry`` opens a session, ``waiting`` holds all that wait.
    """

    _transport: asyncio.Transport  # these three from ``connection_made`` on
    _address: str
    _limit: asyncio.TimerHandle

    def __init__(self, serve: Serve, registry: Registry, waiting: Waiting[Entrance]) -> None:
        self._serve = serve
        self._registry = registry
        self._waiting = waiting
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._address = address_of(transport.get_extra_info("peername"))
        self._waiting.add(self, self._address)
        self._limit = asyncio.get_running_loop().call_later(
            FIRST_LINE_S, self.refuse, "mute", "it has not said what it wants"
        )

    def refuse(self, kind: str, why: str) -> None:
        """End the connection at once, and count why."""
        self._registry.refusals.add(kind, self._address, why)
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._leave()

    def data_received(self, data: bytes) -> None:
        """Hand the connection on, in turn, when its first line is there."""
        self._buffer += data
        end = self._buffer.find(b"\n")
        if end > MAX_LINE or (end < 0 and len(self._buffer) > MAX_LINE):
            self.refuse("oversized", f"a first line of more than {MAX_LINE} bytes")
        elif end >= 0:
            self._transport.pause_reading()
            self._registry.turns.add(self._address, self._hand_on)

    def _hand_on(self) -> None:
        if self._transport.is_closing():
            return
        self._leave()
        self._transport.resume_reading()
        line, _, rest = self._buffer.partition(b"\n")
        protocol: asyncio.Protocol | None
        if line == GREETING:
            protocol, left = self._registry.open(self._address), rest
        elif line.startswith(b"member"):
            self._refuse_version()
            return
        else:
            reader = asyncio.StreamReader(limit=MAX_LINE)
            protocol, left = asyncio.StreamReaderProtocol(reader, self._serve), self._buffer
        if protocol is None:
            self._transport.abort()
            return
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if left:
            protocol.data_received(left)

    def _refuse_version(self) -> None:
        """Tell a member that it has another version; members newer than this can read that."""
        why = f"the keeper speaks version {VERSION}: install one BFTrainer on nodes and its host"
        self._registry.refusals.add("version", self._address, why)
        self._transport.write(encode(Refused(why, retry=True)))
        self._transport.close()

    def _leave(self) -> None:
        self._waiting.discard(self)
        self._limit.cancel()
