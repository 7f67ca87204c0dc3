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

from bftrainer_slurm.keeper import messages
from bftrainer_slurm.keeper.credentials import CredentialError, Gate
from bftrainer_slurm.keeper.disclosure import STATUS_PAYLOAD, disclosed
from bftrainer_slurm.keeper.home import READER_SOCKET
from bftrainer_slurm.keeper.limits import Places, address_of
from bftrainer_slurm.keeper.messages import FromController, encode, parse_from_controller
from bftrainer_slurm.keeper.munge import Munge
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
READER_S = 20.0  # the reader itself gives up before
_PIECE = 64 * 1024
_NO_READER = (
    b'{"error":"no reader answers for the history: on the controller\'s host, '
    b"run 'systemctl enable --now bftrainer-reader', or 'bftrainer reader'\"}"
)


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
        self.registry = Registry(gate, self._tell, self.serve, hold_s, files)
        self._munge = Munge(gate.munge_socket)
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
        server = await loop.create_server(
            self.registry.session, host, port, backlog=ACCEPTED_AT_ONCE
        )
        for listener in server.sockets:
            with listener.dup() as same:
                same.listen(BACKLOG)
        return server

    def announced(self) -> None:
        """Pass on that something was submitted."""
        self._tell(Note(NoteKind.ANNOUNCED))

    async def serve(
        self,
        line: bytes,
        proven: bool,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Answer one request, and ``Watch`` with a stream of notes.

        ``proven``: it is the controller's.
        """
        try:
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
        done = True
        match request:
            case messages.Own(array, uid, want, sizes, engaged):
                self.registry.own(array, uid, want, sizes, engaged)
            case messages.Tell(array, what):
                self.registry.told(array, what)
            case messages.Part(array, tasks):
                done = await self.registry.part(array, set(tasks))
            case messages.Lost(array, task, node):
                self.registry.lost(array, task, node)
            case messages.Publish(length):
                await self._take_status(length, reader)
            case messages.Watch(identity, after):
                await self._stream(after if identity == self._identity else 0, reader, writer)
            case messages.Show(what, since_s):
                await self._show(writer, os.getuid(), what, since_s)
        if not isinstance(request, messages.Watch | messages.Show):
            writer.write(encode(messages.Answer(done)))

    async def _reader(self, proof: list[str]) -> int:
        """Return the id of the user who asks, or ``NOBODY``. Raises ProtocolError."""
        if not proof:
            return NOBODY
        try:
            said, uid = await asyncio.to_thread(self._munge.decode, proof[0])  # it takes time
        except CredentialError as error:
            raise ProtocolError(str(error), "bad_proof") from error
        if said != STATUS_PAYLOAD:
            raise ProtocolError("the credential is for something else", "bad_proof")
        return uid

    async def _past_for(self, what: str, since_s: int, user: int, who: Hashable) -> bytes:
        """Return what a user may see of the history.

        The keeper knows who asks; the reader, which listens in the state folder, knows the history,
        and can be slow without harm to members.
        """
        if self._folder is None or not what.isalnum():
            raise ProtocolError("not a question about the history")
        path = f"/history/{what}?since={since_s}"
        if user not in (0, os.getuid()):
            path += f"&user={user}"
        with self._asking.one(who), contextlib.suppress(OSError, TimeoutError):
            async with self._reads, asyncio.timeout(READER_S):
                reader, writer = await asyncio.open_unix_connection(self._folder / READER_SOCKET)
                try:
                    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode("ascii"))
                    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
                finally:
                    writer.close()
                if head.startswith(b"HTTP/") and body:
                    return body
        return _NO_READER

    def _status_for(self, user: int) -> bytes:
        """Return what a user may see of the status; made when asked for, once for each status."""
        if user in (0, os.getuid()):
            return self._status
        if user not in self._disclosed:
            self._disclosed[user] = disclosed(
                self._status, lambda array: user != NOBODY and self.registry.user(array) == user
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
