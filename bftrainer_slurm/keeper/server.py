"""The keeper's server: answers the lines of ``protocol`` from notes, stores and status.

Notes are kept in a bounded list, so that a controller that was away can read what it missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable

from bftrainer_slurm.keeper.protocol import (
    MAX_DOCUMENT,
    MAX_LINE,
    Note,
    NoteKind,
    NumberedNote,
    ProtocolError,
    format_numbered,
    parse_note,
    whole,
)
from bftrainer_slurm.keeper.stores import Stores, TooManyRunsError

logger = logging.getLogger(__name__)

REMEMBERED_NOTES = 20_000
REQUEST_TIMEOUT_S = 5.0
MAX_CONNECTIONS = 2_000


class Keeper:
    """Everything the keeper holds. ``identity`` tells two lives of a keeper apart."""

    def __init__(
        self, stores: Stores, token: str, identity: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._stores = stores
        self._token = token
        self._identity = identity
        self._clock = clock
        self._notes: deque[NumberedNote] = deque(maxlen=REMEMBERED_NOTES)
        self._numbers = itertools.count(1)
        self._news = asyncio.Condition()
        self._status = b""
        self._status_time_s = 0.0
        self._connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection: one request, and for ``watch`` a stream of notes."""
        self._connections += 1
        try:
            if self._connections > MAX_CONNECTIONS:
                return
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                words = await _read_words(reader)
            try:
                await self._answer(words, reader, writer)
            except (ProtocolError, TooManyRunsError, ValueError) as error:
                writer.write(f"error {error}\n".encode("ascii", "replace"))
            await writer.drain()
        except (TimeoutError, ConnectionError, ProtocolError, ValueError) as error:
            logger.debug("connection given up: %s", error)
        finally:
            self._connections -= 1
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(
        self, words: list[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        match words:
            case ["status"]:
                age_s = self._clock() - self._status_time_s
                writer.write(f"document {age_s:.3f} {len(self._status)}\n".encode())
                writer.write(self._status)
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
                self._stores.end(whole(array))
                writer.write(b"ok\n")
            case _:
                writer.write(await self._note(parse_note(words)))

    async def _note(self, note: Note) -> bytes:
        answer = b"ok\n"
        if note.kind is NoteKind.UP:
            run = self._stores.run(note.array)
            answer = f"run {run.id} {run.host}:{run.port}\n".encode()
        async with self._news:
            self._notes.append(NumberedNote(next(self._numbers), self._clock(), note))
            self._news.notify_all()
        return answer

    async def _stream(
        self, after: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(f"keeper {self._identity}\n".encode())
        hung_up = asyncio.ensure_future(reader.read(1))
        try:
            while not hung_up.done():
                fresh = [numbered for numbered in self._notes if numbered.number > after]
                for numbered in fresh:
                    writer.write(format_numbered(numbered).encode() + b"\n")
                    after = numbered.number
                await writer.drain()
                waiting = asyncio.ensure_future(self._wait_for_news(after))
                await asyncio.wait({waiting, hung_up}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
        finally:
            hung_up.cancel()

    async def _wait_for_news(self, after: int) -> None:
        async with self._news:
            await self._news.wait_for(lambda: bool(self._notes) and self._notes[-1].number > after)

    async def _take_status(self, length: int, reader: asyncio.StreamReader) -> None:
        if length > MAX_DOCUMENT:
            raise ProtocolError("the status is too large")
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            self._status = await reader.readexactly(length)
        self._status_time_s = self._clock()

    def _check(self, token: str) -> None:
        if not hmac.compare_digest(token, self._token):
            raise ProtocolError("only this keeper's own controller may ask that")


async def _read_words(reader: asyncio.StreamReader) -> list[str]:
    line = await reader.readline()
    if not line.endswith(b"\n") or len(line) > MAX_LINE:
        raise ProtocolError("not a line")
    return line.decode("ascii", "replace").split()
