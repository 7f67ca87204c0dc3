"""The keeper's server: answers people, hints, and the controller.

``registry`` handles trainers' processes; this module handles connections with one request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import time
from collections.abc import Hashable
from pathlib import Path

from bftrainer_slurm.keeper import messages, relay
from bftrainer_slurm.keeper.away import Engaged
from bftrainer_slurm.keeper.disclosure import disclosed
from bftrainer_slurm.keeper.gate import Gate
from bftrainer_slurm.keeper.limits import Places, address_of
from bftrainer_slurm.keeper.messages import FromController, encode, parse_from_controller
from bftrainer_slurm.keeper.notes import Notes
from bftrainer_slurm.keeper.protocol import (
    MAX_DOCUMENT,
    STILL_HERE_S,
    Note,
    NoteKind,
    ProtocolError,
    parse_hint,
    whole,
    write_line,
)
from bftrainer_slurm.keeper.registry import MANY_FILES, Registry
from bftrainer_slurm.keeper.session import Session
from bftrainer_slurm.sizes import Sizes

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 5.0
SEND_TIMEOUT_S = 30.0
# Of the status or the history at the same time, in all and of one user (or a stranger's address): a
# slow reader takes one of these places.
MAX_READERS, MAX_READERS_OF_ONE = 500, 50
ACCEPTED_AT_ONCE = 16
BACKLOG = 1_024  # connections that wait in the kernel
MAX_ASKING, MAX_ASKING_OF_ONE = 100, 10  # requests for the history; two are answered at a time
NOBODY = -1  # a reader of the status who has not said who they are
_PIECE = 64 * 1024


class Keeper:
    """Everything the keeper holds. Its identity is another one after each start.

    ``hold_s``: see ``Registry``; ``files`` is how many this process may have open; ``folder`` is
    the state folder, where the reader answers questions about the history.
    """

    def __init__(
        self,
        gate: Gate,
        hold_s: float = 0.0,
        files: int = MANY_FILES,
        folder: Path | None = None,
    ) -> None:
        self.registry = Registry(gate, self._tell, hold_s, files)
        self._identity = os.urandom(8).hex()
        self._notes = Notes()
        self._news = asyncio.Event()  # replaced at each note
        self._status = b""
        self._disclosed: dict[int, bytes] = {}  # by user
        self._status_time_s = 0.0
        self._readers = Places(MAX_READERS, MAX_READERS_OF_ONE)
        self._asking = Places(MAX_ASKING, MAX_ASKING_OF_ONE)
        self._folder, self._reads = folder, asyncio.Semaphore(2)

    async def listen(self, host: str, port: int) -> asyncio.Server:
        """Accept connections, few at a time, so that a flood of them leaves time for members."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self.entrance, host, port, backlog=ACCEPTED_AT_ONCE)
        for listener in server.sockets:
            with listener.dup() as same:
                same.listen(BACKLOG)
        return server

    def entrance(self) -> Session:
        """Return what takes a new connection."""
        return self.registry.session(self.serve)

    def announced(self) -> None:
        """Pass on that something was submitted."""
        self._tell(Note(NoteKind.ANNOUNCED))

    async def serve(
        self, proven: bool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer one connection: one request, and to ``Watch`` a stream of notes.

        ``proven``: it is the controller's.
        """
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                line = await reader.readline()
            try:
                if proven:
                    await self._obey(parse_from_controller(line), reader, writer)
                else:
                    await self._answer(line.decode("ascii", "replace").split(), writer)
            except ValueError as error:
                address = address_of(writer.get_extra_info("peername"))
                kind = getattr(error, "kind", "malformed")
                self.registry.refusals.add(kind, address, str(error))
                writer.write(f"refused {error}\n".encode("ascii", "replace"))
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await writer.drain()
        except (TimeoutError, ConnectionError, EOFError, ValueError) as error:
            logger.debug("connection given up: %s", error)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await writer.wait_closed()
            writer.transport.abort()

    async def _answer(self, words: list[str], writer: asyncio.StreamWriter) -> None:
        """Answer what anybody may ask; MUNGE's credential may say who asks."""
        match words:
            case ["status", *proof] if len(proof) <= 1:
                await self._show(writer, await self._reader(proof))
            case ["history", what, since, *proof] if len(proof) <= 1:
                await self._show(writer, await self._reader(proof), what, whole(since))
            case _:
                self._tell(parse_hint(words))
                writer.write(b"ok\n")

    async def _obey(
        self, request: FromController, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Do what the controller asks, and answer it."""
        trainers, done = self.registry.gate.trainers, True
        match request:
            case messages.Own(array, uid, want, only, step, without, generation, tasks, leader):
                engaged = Engaged(generation, frozenset(tasks), leader)
                self.registry.own(array, uid, want, Sizes(only, step, without), engaged)
            case messages.Tell(array, "begins"):
                trainers.told(array).begin()
            case messages.Tell(array, "finished"):
                trainers.told(array).finished = True
            case messages.Tell(array):
                trainers.told(array).end()
                self.registry.end(array)
            case messages.Part(array, tasks):
                done = await self.registry.part(array, set(tasks))
            case messages.Lost(array, task):
                self.registry.lost(array, task)
            case messages.Publish(length):
                await self._take_status(length, reader)
            case messages.Watch(identity, after):
                await self._stream(after if identity == self._identity else 0, reader, writer)
            case messages.Show(what, since_s):
                await self._show(writer, os.getuid(), what, since_s)
        if not isinstance(request, messages.Watch | messages.Show):
            writer.write(encode(messages.Answer(done)))

    async def _reader(self, proof: list[str]) -> int:
        """Return the id of the user who asks, or ``NOBODY``."""
        return await self.registry.gate.reader(proof[0]) if proof else NOBODY

    async def _past_for(self, what: str, since_s: int, user: int, who: Hashable) -> bytes:
        """Return what a user may see of the history, as the reader says."""
        if self._folder is None or not what.isalnum():
            raise ProtocolError("not a question about the history")
        everything = user in (0, os.getuid())
        with self._asking.one(who):
            async with self._reads:
                asker = None if everything else user
                return await relay.asked(self._folder, what, since_s, asker)

    def _status_for(self, user: int) -> bytes:
        """Return what a user may see of the status; made when asked for, once for each status."""
        if user in (0, os.getuid()):
            return self._status
        if user not in self._disclosed:
            gate = self.registry.gate
            self._disclosed[user] = disclosed(
                self._status, lambda array: user != NOBODY and gate.user(array) == user
            )
        return self._disclosed[user]

    async def _show(
        self, writer: asyncio.StreamWriter, user: int, what: str = "", since_s: int = 0
    ) -> None:
        """Send the status, or what the history has about ``what``, as far as the user may see."""
        # Whose a request is: a user's, or of the address that a stranger asks from.
        who = user if user != NOBODY else address_of(writer.get_extra_info("peername"))
        if what:
            document = await self._past_for(what, since_s, user, who)
        else:
            document = self._status_for(user)
        with self._readers.one(who):
            age_s = time.time() - self._status_time_s
            own = json.dumps(self.registry.status()).encode()
            head = f"document {age_s:.3f} {len(document)} {len(own)}\n"
            # Not joined: so all slow readers hold the same document, and no copy of it.
            for part in (head.encode(), document, own):
                await _send(writer, part)

    def _tell(self, note: Note) -> None:
        if self._notes.add(note):
            self._news.set()
            self._news = asyncio.Event()

    async def _stream(
        self, after: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(encode(messages.Serving(self._identity)))
        while not reader.at_eof():
            news = self._news
            for numbered in self._notes.since(after):
                writer.write(write_line({"note": numbered}))
                after = numbered.number
            await writer.drain()
            if after < self._notes.last:
                continue
            writer.write(b"\n")  # that is all for now
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STILL_HERE_S):
                    await news.wait()

    async def _take_status(self, length: int, reader: asyncio.StreamReader) -> None:
        if length > MAX_DOCUMENT:
            raise ProtocolError("the status is too large")
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            self._status = await reader.readexactly(length)
        self._disclosed.clear()
        self._status_time_s = time.time()


async def _send(writer: asyncio.StreamWriter, document: bytes) -> None:
    """Send piece by piece: a client that does not read must not make the keeper hold a copy."""
    async with asyncio.timeout(SEND_TIMEOUT_S):
        for at in range(0, len(document), _PIECE):
            writer.write(document[at : at + _PIECE])
            await writer.drain()
