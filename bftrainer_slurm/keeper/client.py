"""Requests to the keeper: each call is one connection, and gets its answer within a time limit.

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
    NOTE,
    STILL_HERE_S,
    Note,
    NoteKind,
    NumberedNote,
    ProtocolError,
    format_hint,
    parse_address,
    read_line,
    whole,
)
from bftrainer_slurm.sizes import ANY, Sizes

logger = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

DEFAULT_TIMEOUT_S = 2.0
_PAST_TIMEOUT_S = 30.0  # 90 days of a large cluster are a million stays of elements
_PART_TIMEOUT_S = 4.0  # the keeper itself answers after 2 s at the latest
_SILENT_S = 4 * STILL_HERE_S  # a keeper whose host has lost its power does not hang up


class KeeperError(Exception):
    """The keeper did not answer, or refused."""


class SilentError(KeeperError):
    """The keeper did not answer; a keeper at another address may."""


@dataclass(frozen=True, slots=True)
class KeeperClient:
    """The keeper at ``address``; ``token`` is for requests that only the controller may make.

    HOST:PORT, or several with commas between them: a call tries them in turn until one answers.
    ``publish`` and ``watch`` need a single one.
    """

    address: str
    token: str = ""
    timeout_s: float = DEFAULT_TIMEOUT_S

    def tell(self, note: Note) -> None:
        """Send a note.

        Raises:
            KeeperError: it did not arrive.
        """
        self._ask(format_hint(note))

    def join(self, array: int, task: int, node: str) -> tuple[str, bool] | None:
        """Say that an element is up; return the id of its trainer's run; None: it has finished.

        The second value says whether it is the trainer's first element.
        """
        answer = self._ask(format_hint(Note(NoteKind.UP, array, task, node))).split()
        if answer == ["finished"]:
            return None
        if len(answer) < 2 or answer[0] != "run":
            raise KeeperError("the keeper's answer is not a run")
        return answer[1], answer[2:] == ["first"]

    def end_run(self, array: int) -> None:
        """Let the trainer's next element begin a new run (controller only)."""
        self._ask(f"endrun {self.token} {array}")

    def begin(self, array: int) -> None:
        """Say that the trainer's next element is its first (controller only)."""
        self._ask(f"begin {self.token} {array}")

    def finish(self, array: int) -> None:
        """Say that the training has ended well: who starts now shall end (controller only)."""
        self._ask(f"finish {self.token} {array}")

    def own(self, array: int, uid: int, want: int, sizes: Sizes = ANY) -> None:
        """Say who owns the trainer, and how many nodes the plan gives it (controller only).

        ``want`` 0: not known. The trainer's group has one of these ``sizes``.
        """
        numbers = (sizes.step, *(sizes.only or (0, *sizes.without)))
        words = "" if sizes == ANY else f" {' '.join(map(str, numbers))}"
        self._ask(f"own {self.token} {array} {uid} {want}{words}")

    def part(self, array: int, tasks: Iterable[int]) -> bool:
        """Ask tasks to leave at a step boundary; return whether they have left (controller only).

        It takes 2 s at most. If none of the tasks is a member, the answer is True.
        """
        patient = replace(self, timeout_s=max(self.timeout_s, _PART_TIMEOUT_S))
        return patient._ask(f"part {self.token} {array} {' '.join(map(str, tasks))}") == "ok"

    def lost(self, array: int, task: int) -> None:
        """Say that Slurm has ended this task (controller only)."""
        self._ask(f"lost {self.token} {array} {task}")

    def publish(self, status: dict[str, Any]) -> None:
        """Send the keeper the status that users are shown (controller only)."""
        body = json.dumps(status, separators=(",", ":")).encode()
        request = f"publish {self.token} {len(body)}"
        with self._asked(request, self.timeout_s, body) as stream:
            _expect_good(stream)

    def status(self, credential: str = "") -> tuple[float, dict[str, Any] | None]:
        """Return the age (seconds) of the last published status, and the status or None.

        The token shows all of it. A MUNGE ``credential`` shows all about the trainers of the user
        who made it; without both there is only what everybody may see. ``keeper`` in it is about
        the keeper itself.
        """
        return self._document("status", credential, self.timeout_s)

    def history(self, what: str, since_s: float, credential: str = "") -> dict[str, Any]:
        """Return what the history has about ``what`` since then; see ``reader.stories``.

        Who may see what is as for ``status``.
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
        return self._answer(f"{request} {proof}".rstrip(), _read_status, patience_s)

    def watch(
        self, identity: str, after: int, silent_s: float = _SILENT_S
    ) -> Iterator[tuple[str, NumberedNote | None]]:
        """Yield (the keeper's identity, note) for ever (controller only).

        The first note is None, and so is one after all that the keeper has for now. ``identity``
        and ``after`` say which note the caller has read last.

        Raises:
            SilentError: nothing has come from the keeper for ``silent_s`` seconds.
        """
        with self._asked(f"watch {self.token} {identity or '-'} {after}", silent_s) as stream:
            words = _expect_good(stream).split()
            if len(words) != 2 or words[0] != "keeper":
                raise KeeperError("the keeper's answer is not a stream of notes")
            yield words[1], None
            while line := stream.readline(MAX_NOTE):
                if line == b"\n":
                    yield words[1], None
                    continue
                try:
                    note = read_line(line, NOTE)
                except ProtocolError as error:  # from a keeper of another version
                    logger.warning("a note left out: %s", error)
                else:
                    yield words[1], note

    def _ask(self, request: str) -> str:
        return self._answer(request, _expect_good, self.timeout_s)

    def _answer(
        self, request: str, read: Callable[[BufferedRWPair], _Answer], patience_s: float
    ) -> _Answer:
        """Ask one address after the other until there is an answer."""
        for address in self.address.split(","):
            try:
                with replace(self, address=address)._asked(request, patience_s) as stream:
                    return read(stream)
            except SilentError as error:
                failure = error
        raise failure

    @contextmanager
    def _asked(
        self, request: str, patience_s: float, body: bytes = b""
    ) -> Iterator[BufferedRWPair]:
        """Connect and send the request; yield the stream to read the answer from."""
        try:
            address = parse_address(self.address)
            with socket.create_connection(address, timeout=self.timeout_s) as connection:
                connection.settimeout(patience_s)
                with connection.makefile("rwb") as stream:
                    stream.write(request.encode("ascii") + b"\n" + body)
                    stream.flush()
                    yield stream
        except (OSError, ValueError) as error:
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
