"""Asking the keeper: one call, one connection, an answer within a time limit.

Used by the controller, the command line, and by elements in personal mode. Standard library only.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BufferedRWPair
from typing import Any, TypeVar

from bftrainer_slurm.keeper.protocol import (
    MAX_DOCUMENT,
    MAX_LINE,
    MAX_NOTE,
    Note,
    NoteKind,
    NumberedNote,
    ProtocolError,
    format_note,
    parse_address,
    parse_numbered,
    whole,
)

logger = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

DEFAULT_TIMEOUT_S = 2.0
_PAST_TIMEOUT_S = 30.0  # 90 days of a large cluster have a million stays
_PART_TIMEOUT_S = 4.0  # the keeper itself answers after 2 s at the latest


class KeeperError(Exception):
    """The keeper did not answer, or said no."""


class SilentError(KeeperError):
    """The keeper did not answer: there may be another one that does."""


@dataclass(frozen=True, slots=True)
class KeeperClient:
    """The keeper at ``address``; ``token`` is needed for what only a controller may.

    HOST:PORT, or several with commas between them: each call asks them in turn until one answers.
    """

    address: str
    token: str = ""
    timeout_s: float = DEFAULT_TIMEOUT_S

    def tell(self, note: Note) -> None:
        """Send a note.

        Raises:
            KeeperError: it did not arrive.
        """
        self._ask(format_note(note))

    def join(self, array: int, task: int, node: str) -> str:
        """Say that an element is up; return the id of its trainer's run."""
        answer = self._ask(format_note(Note(NoteKind.UP, array, task, node))).split()
        if len(answer) != 2 or answer[0] != "run":
            raise KeeperError("the keeper's answer is not a run")
        return answer[1]

    def end_run(self, array: int) -> None:
        """Let the trainer's next element begin a new run (controller only)."""
        self._ask(f"endrun {self.token} {array}")

    def own(self, array: int, uid: int, want: int) -> None:
        """Say whose trainer it is, and how many nodes the plan gives it (controller only).

        ``want`` 0: not known.
        """
        self._ask(f"own {self.token} {array} {uid} {want}")

    def part(self, array: int, tasks: Iterable[int]) -> bool:
        """Let these tasks leave at a step boundary; return whether they have (controller only).

        Takes 2 s at most; True also where none of them is a member.
        """
        patient = replace(self, timeout_s=max(self.timeout_s, _PART_TIMEOUT_S))
        return patient._ask(f"part {self.token} {array} {' '.join(map(str, tasks))}") == "ok"

    def lost(self, array: int, task: int) -> None:
        """Say that Slurm has ended this task (controller only)."""
        self._ask(f"lost {self.token} {array} {task}")

    def publish(self, status: dict[str, Any]) -> None:
        """Leave the status that users are shown (controller only)."""
        body = json.dumps(status, separators=(",", ":")).encode()
        with self._connect(self.timeout_s) as stream:
            stream.write(f"publish {self.token} {len(body)}\n".encode() + body)
            stream.flush()
            _expect_good(stream)

    def status(self, credential: str = "") -> tuple[float, dict[str, Any] | None]:
        """Return the age (seconds) of the last published status, and the status or None.

        All of it with the token; with a ``credential`` of MUNGE's all of the trainers of who made
        it; else what is everybody's. What the keeper says of itself is in it under ``keeper``.
        """
        return self._document("status", credential, self.timeout_s)

    def history(self, what: str, since_s: float, credential: str = "") -> dict[str, Any]:
        """Return what the history holds of ``what`` since then; see ``publish.history``.

        Rights are as with ``status``.
        """
        request = f"history {what} {max(0, int(since_s))}"
        _, found = self._document(request, credential, max(self.timeout_s, _PAST_TIMEOUT_S))
        if found is None:
            raise KeeperError("the keeper's answer is no history")
        return found

    def _document(
        self, request: str, credential: str, patience_s: float
    ) -> tuple[float, dict[str, Any] | None]:
        proof = f"munge {credential}" if credential else self.token

        def ask(keeper: KeeperClient) -> tuple[float, dict[str, Any] | None]:
            with keeper._connect(patience_s) as stream:
                stream.write(f"{request} {proof}".rstrip().encode("ascii") + b"\n")
                stream.flush()
                return _read_status(stream)

        return self._in_turn(ask)

    def watch(self, identity: str, after: int) -> Iterator[tuple[str, NumberedNote | None]]:
        """Yield (identity of the keeper, note) for ever (controller only); first without a note.

        ``identity`` and ``after`` say up to which note the caller has read.
        """
        with self._connect(None) as stream:
            stream.write(f"watch {self.token} {identity or '-'} {after}\n".encode())
            stream.flush()
            words = _expect_good(stream).split()
            if len(words) != 2 or words[0] != "keeper":
                raise KeeperError("the keeper's answer is not a stream of notes")
            yield words[1], None
            while line := stream.readline(MAX_NOTE):
                try:
                    note = parse_numbered(line.decode("ascii"))
                except ValueError as error:  # of a keeper of another version
                    logger.warning("a note left out: %s", error)
                else:
                    yield words[1], note

    def _ask(self, line: str) -> str:
        def ask(keeper: KeeperClient) -> str:
            with keeper._connect(keeper.timeout_s) as stream:
                stream.write(line.encode("ascii") + b"\n")
                stream.flush()
                return _expect_good(stream)

        return self._in_turn(ask)

    def _in_turn(self, ask: Callable[[KeeperClient], _Answer]) -> _Answer:
        failure = SilentError(f"'{self.address}' is no address")
        for address in self.address.split(","):
            try:
                return ask(replace(self, address=address))
            except SilentError as error:
                failure = error
        raise failure

    @contextmanager
    def _connect(self, timeout_s: float | None) -> Iterator[BufferedRWPair]:
        try:
            address = parse_address(self.address)
            with socket.create_connection(address, timeout=self.timeout_s) as connection:
                connection.settimeout(timeout_s)
                with connection.makefile("rwb") as stream:
                    yield stream
        except (OSError, ProtocolError, ValueError) as error:
            raise SilentError(f"the keeper at {self.address} does not answer: {error}") from error


def _read_status(stream: BufferedRWPair) -> tuple[float, dict[str, Any] | None]:
    words = _expect_good(stream).split()
    lengths = [whole(word) for word in words[2:]]
    if len(words) != 4 or words[0] != "document" or max(lengths) > MAX_DOCUMENT:
        raise KeeperError("the keeper's answer is not a status")
    body, own = stream.read(lengths[0]), stream.read(lengths[1])
    return float(words[1]), _object(body) | {"keeper": _object(own)} if body else None


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except RecursionError as error:
        raise KeeperError("the keeper's status cannot be read") from error
    if not isinstance(found, dict):
        raise KeeperError("the keeper's status is not an object")
    return found


def _expect_good(stream: BufferedRWPair) -> str:
    line = stream.readline(MAX_LINE).decode("ascii", "replace").strip()
    if not line:
        raise SilentError("the keeper hung up")
    if line.startswith("error "):
        raise KeeperError(f"the keeper says: {line.removeprefix('error ')}")
    return line
