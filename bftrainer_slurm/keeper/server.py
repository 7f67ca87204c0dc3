"""The keeper's server: answers the lines of ``protocol`` from notes, sessions and status.

Members of groups are the business of ``sessions``; here is what takes one line and one answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import os
import time
from collections.abc import Callable

from bftrainer_slurm.keeper.attempts import Attempts
from bftrainer_slurm.keeper.disclosure import disclosed
from bftrainer_slurm.keeper.entrance import Entrance
from bftrainer_slurm.keeper.gate import Gate
from bftrainer_slurm.keeper.notes import Notes
from bftrainer_slurm.keeper.protocol import (
    MAX_DOCUMENT,
    MAX_LINE,
    Asked,
    Note,
    NoteKind,
    ProtocolError,
    format_numbered,
    parse_hint,
    whole,
)
from bftrainer_slurm.keeper.sessions import MANY_FILES, Sessions
from bftrainer_slurm.keeper.vouchers import NotAdmittedError, Owner
from bftrainer_slurm.keeper.waiting import Waiting, address_of

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 5.0
SEND_TIMEOUT_S = 30.0
MAX_READERS = 500  # of the status at the same time: who reads slowly holds one of these places
MAX_WAITING = 4_000
MAX_ASKING = 100  # for something of the history, of which two are answered at a time
NOBODY = -1  # a reader of the status who has not said who they are
_PIECE = 64 * 1024
_TOO_MANY = "too many read the status; ask again"


class Keeper:
    """Everything the keeper holds. ``identity`` tells two lives of a keeper apart.

    ``hold_s``: see ``Sessions``; ``files`` is how many this process may have open; ``past`` answers
    from the history, for the status that it is given as well.
    """

    def __init__(
        self,
        gate: Gate,
        token: str,
        identity: str,
        hold_s: float = 0.0,
        clock: Callable[[], float] = time.time,
        files: int = MANY_FILES,
        past: Callable[[Asked, bytes], bytes] | None = None,
    ) -> None:
        self._attempts = Attempts()
        self.sessions = Sessions(gate, self._attempts.name, self._tell, hold_s, files)
        self._token = token
        self._identity = identity
        self._clock = clock
        self._notes = Notes(clock)
        self._news = asyncio.Event()  # replaced at each note
        self._status = b""
        self._disclosed: dict[int, bytes] = {}  # by user
        self._status_time_s = 0.0
        self._readers = self._asking = 0
        self._past, self._reads = past, asyncio.Semaphore(2)
        self._entering: Waiting[Entrance] = Waiting(min(MAX_WAITING, files // 4), _turn_away)

    def entrance(self) -> Entrance:
        """Return what takes a new connection."""
        return Entrance(self.serve, self.sessions.open, self._entering, self.sessions.refusals)

    def announced(self) -> None:
        """Pass on that something was submitted."""
        self._tell(Note(NoteKind.ANNOUNCED))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection: one request, and for ``watch`` a stream of notes."""
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                words = await _read_words(reader)
            try:
                await self._answer(words, reader, writer)
            except (NotAdmittedError, ValueError) as error:
                self._refuse(error, writer)
                writer.write(f"error {error}\n".encode("ascii", "replace"))
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

    def _refuse(self, error: Exception, writer: asyncio.StreamWriter) -> None:
        kinds = {
            _TooManyReadersError: "too_many",
            NotAdmittedError: "bad_proof",
            _TokenError: "bad_token",
        }
        address = address_of(writer.get_extra_info("peername"))
        self.sessions.refusals.add(kinds.get(type(error), "malformed"), address, str(error))

    async def _answer(
        self, words: list[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        match words:
            case ["status", *proof] if len(proof) <= 2:
                await self._show(writer, self._status_for(await self._reader(proof)))
            case ["history", what, since, *proof] if len(proof) <= 2:
                past = await self._past_for(what, whole(since), await self._reader(proof))
                await self._show(writer, past)
            case ["watch", token, identity, since]:
                self._check(token)
                after = whole(since) if identity == self._identity else 0
                await self._stream(after, reader, writer)
            case ["publish", token, length]:
                self._check(token)
                await self._take_status(whole(length), reader)
                writer.write(b"ok\n")
            case ["endrun", token, array]:
                self._check(token)
                self._attempts.end(whole(array))
                self.sessions.end(whole(array))
                writer.write(b"ok\n")
            case ["own", token, array, uid, want]:
                self._check(token)
                self.sessions.own(whole(array), Owner(whole(uid), whole(want)))
                writer.write(b"ok\n")
            case ["part", token, array, *tasks] if tasks:
                self._check(token)
                left = await self.sessions.part(whole(array), {whole(task) for task in tasks})
                writer.write(b"ok\n" if left else b"late\n")
            case ["lost", token, array, task]:
                self._check(token)
                self.sessions.lost(whole(array), whole(task))
                writer.write(b"ok\n")
            case _:
                writer.write(self._hint(parse_hint(words)))

    async def _reader(self, proof: list[str]) -> int:
        """Return the id of the user who asks, as far as they prove it; with the token our own."""
        match proof:
            case [token]:
                self._check(token)
                return os.getuid()
            case [method, credential]:
                return await self.sessions.gate.reader(method, credential)
        return NOBODY

    async def _past_for(self, what: str, since_s: int, user: int) -> bytes:
        """What of the history a user may see; others are served while it is read."""
        if self._past is None:
            raise ProtocolError("this keeper has no history")
        if self._asking >= MAX_ASKING:
            raise _TooManyReadersError(_TOO_MANY)
        self._asking += 1
        try:
            async with self._reads:
                everything = user in (0, os.getuid())
                asked = Asked(what, since_s, None if everything else user)
                return await asyncio.to_thread(self._past, asked, self._status)
        finally:
            self._asking -= 1

    def _status_for(self, user: int) -> bytes:
        """What of the status a user may see; made where it is asked for, once for each status."""
        if user in (0, os.getuid()):
            return self._status
        if user not in self._disclosed:
            gate = self.sessions.gate
            self._disclosed[user] = disclosed(
                self._status, lambda array: user != NOBODY and gate.user(array) == user
            )
        return self._disclosed[user]

    async def _show(self, writer: asyncio.StreamWriter, document: bytes) -> None:
        if self._readers >= MAX_READERS:
            raise _TooManyReadersError(_TOO_MANY)
        self._readers += 1
        try:
            age_s = self._clock() - self._status_time_s
            own = json.dumps(self.sessions.status()).encode()
            head = f"document {age_s:.3f} {len(document)} {len(own)}\n"
            # Not put together: what those hold who read slowly is one and the same.
            for part in (head.encode(), document, own):
                await _send(writer, part)
        finally:
            self._readers -= 1

    def _hint(self, note: Note) -> bytes:
        answer = b"ok\n"
        if note.kind is NoteKind.UP:
            answer = f"run {self._attempts.name(note.array)}\n".encode()
        self._tell(note)
        return answer

    def _tell(self, note: Note) -> None:
        self._notes.add(note)
        self._news.set()
        self._news = asyncio.Event()

    async def _stream(
        self, after: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(f"keeper {self._identity}\n".encode())
        hung_up = asyncio.ensure_future(reader.read(1))
        try:
            while not hung_up.done():
                news = self._news
                for numbered in self._notes.since(after):
                    writer.write(format_numbered(numbered).encode() + b"\n")
                    after = numbered.number
                await writer.drain()
                if after < self._notes.last:
                    continue
                waiting = asyncio.ensure_future(news.wait())
                await asyncio.wait({waiting, hung_up}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
        finally:
            hung_up.cancel()

    async def _take_status(self, length: int, reader: asyncio.StreamReader) -> None:
        if length > MAX_DOCUMENT:
            raise ProtocolError("the status is too large")
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            self._status = await reader.readexactly(length)
        self._disclosed.clear()
        self._status_time_s = self._clock()

    def _check(self, token: str) -> None:
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            raise _TokenError("only this keeper's own controller may ask that")


class _TooManyReadersError(ProtocolError):
    """The status is being sent to so many already."""


class _TokenError(ProtocolError):
    """Somebody asked what only the controller may ask."""


def _turn_away(entrance: Entrance) -> None:
    entrance.refuse("too_many", "too many connections have not said anything yet")


async def _send(writer: asyncio.StreamWriter, document: bytes) -> None:
    """Send piece by piece: who does not read must not make the keeper hold a copy."""
    async with asyncio.timeout(SEND_TIMEOUT_S):
        for at in range(0, len(document), _PIECE):
            writer.write(document[at : at + _PIECE])
            await writer.drain()


async def _read_words(reader: asyncio.StreamReader) -> list[str]:
    line = await reader.readline()
    if not line.endswith(b"\n") or len(line) > MAX_LINE:
        raise ProtocolError("not a line")
    return line.decode("ascii", "replace").split()
