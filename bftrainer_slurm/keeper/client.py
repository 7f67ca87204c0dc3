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
from typing import Any, BinaryIO, TypeVar

from bftrainer_slurm.keeper import messages
from bftrainer_slurm.keeper.credentials import CONTROLLER, CredentialError, introduce, why_refused
from bftrainer_slurm.keeper.messages import (
    NOBODY,
    Engaged,
    FromController,
    FromKeeper,
    encode,
    parse_from_keeper,
)
from bftrainer_slurm.keeper.protocol import (
    MAX_ANSWER,
    MAX_DOCUMENT,
    NOTE,
    STILL_HERE_S,
    Note,
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
    """The keeper did not answer, or who did is not our keeper; one at another address may be."""


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
        """Send a note that is only a hint.

        Raises:
            KeeperError: it did not arrive.
        """
        self._answer(format_hint(note).encode() + b"\n", _line_of, who="")

    def join(self, array: int, task: int, node: str, secret: bytes) -> tuple[str, bool] | None:
        """Say that an element is up; return the id of its trainer's run; None: it has finished.

        The second value says whether it is the trainer's first element. ``secret``: the trainer's.
        """
        own = replace(self, token=secret.decode("ascii", "replace"))
        answer = own._answer(encode(messages.Up(task, node)), _message, who=str(array))
        if isinstance(answer, messages.Finished):
            return None
        if not isinstance(answer, messages.Started):
            raise KeeperError("the keeper's answer is not a run")
        return answer.run, answer.first

    def say(self, array: int, what: str) -> None:
        """Say that a trainer "begins" with its next element, or has "finished" (controller only).

        Who starts when it has finished ends at once. Once its run has "ended", the next element
        begins another one.
        """
        self._ask(messages.Tell(array, what))

    def own(
        self, array: int, uid: int, want: int, sizes: Sizes = ANY, engaged: Engaged = NOBODY
    ) -> None:
        """Say who owns the trainer, and how many nodes the plan gives it (controller only).

        ``want`` 0: not known. The trainer's group has one of these ``sizes``. A new keeper is told
        who is ``engaged``.
        """
        self._ask(messages.Own(array, uid, want, sizes, engaged))

    def part(self, array: int, tasks: Iterable[int]) -> bool:
        """Ask tasks to leave at a step boundary; return whether they have left (controller only).

        It takes 2 s at most. If none of the tasks is a member, the answer is True.
        """
        return self._ask(messages.Part(array, tuple(tasks)), max(self.timeout_s, _PART_TIMEOUT_S))

    def lost(self, array: int, task: int, node: str) -> None:
        """Say that Slurm has ended this task on this node (controller only)."""
        self._ask(messages.Lost(array, task, node))

    def publish(self, status: dict[str, Any]) -> None:
        """Send the keeper the status that users are shown (controller only)."""
        body = json.dumps(status, separators=(",", ":")).encode()
        with self._asked(encode(messages.Publish(len(body))) + body, self.timeout_s) as stream:
            _message(stream)

    def status(self, credential: str = "") -> tuple[float, dict[str, Any] | None]:
        """Return the age (seconds) of the last published status, and the status or None.

        The token shows all of it. A MUNGE ``credential`` shows all about the trainers of the user
        who made it; without both there is only what everybody may see. ``keeper`` in it is about
        the keeper itself.
        """
        return self._document("status", credential, messages.Show(), self.timeout_s)

    def history(self, what: str, since_s: float, credential: str = "") -> dict[str, Any]:
        """Return what the history has about ``what`` since then; see ``reader.stories``.

        Who may see what is as for ``status``.
        """
        past = messages.Show(what, max(0, int(since_s)))
        words, patience_s = f"history {what} {past.since_s}", max(self.timeout_s, _PAST_TIMEOUT_S)
        _, found = self._document(words, credential, past, patience_s)
        if found is None:
            raise KeeperError("the keeper's answer is no history")
        return found

    def _document(
        self, words: str, credential: str, request: FromController, patience_s: float
    ) -> tuple[float, dict[str, Any] | None]:
        if self.token and not credential:
            return self._answer(encode(request), _read_status, patience_s)
        line = f"{words} {credential}".rstrip().encode() + b"\n"
        return self._answer(line, _read_status, patience_s, who="")

    def watch(
        self, identity: str, after: int, silent_s: float = _SILENT_S
    ) -> Iterator[tuple[str, NumberedNote | None]]:
        """Yield (the keeper's identity, note) for ever (controller only).

        The first note is None, and so is one after all that the keeper has for now. ``identity``
        and ``after`` say which note the caller has read last.

        Raises:
            SilentError: nothing has come from the keeper for ``silent_s`` seconds.
        """
        with self._asked(encode(messages.Watch(identity, after)), silent_s) as stream:
            serving = _message(stream)
            if not isinstance(serving, messages.Serving):
                raise KeeperError("the keeper's answer is not a stream of notes")
            yield serving.identity, None
            while line := stream.readline(MAX_ANSWER):
                if line == b"\n":
                    yield serving.identity, None
                    continue
                try:
                    note = read_line(line, NOTE)
                except ProtocolError as error:  # from a keeper of another version
                    logger.warning("a note left out: %s", error)
                else:
                    yield serving.identity, note

    def _ask(self, request: FromController, patience_s: float | None = None) -> bool:
        """Ask as the controller; return whether it is done."""
        return self._answer(encode(request), _message, patience_s) == messages.Answer()

    def _answer(
        self,
        message: bytes,
        read: Callable[[BinaryIO], _Answer],
        patience_s: float | None = None,
        who: str = CONTROLLER,
    ) -> _Answer:
        """Ask one address after the other until there is an answer."""
        patience_s = self.timeout_s if patience_s is None else patience_s
        for address in self.address.split(","):
            try:
                with replace(self, address=address)._asked(message, patience_s, who) as stream:
                    return read(stream)
            except SilentError as error:
                failure = error
        raise failure

    @contextmanager
    def _asked(
        self, message: bytes, patience_s: float, who: str = CONTROLLER
    ) -> Iterator[BinaryIO]:
        """Connect, prove that we are ``who`` (empty: anybody), send; yield where the answer is."""
        try:
            address = parse_address(self.address)
            with socket.create_connection(address, timeout=self.timeout_s) as connection:
                if who:
                    introduce(connection, who, self.token.encode(), message, self.timeout_s)
                else:
                    connection.sendall(message)
                connection.settimeout(patience_s)
                with connection.makefile("rb") as stream:
                    yield stream
        except CredentialError as error:
            raise SilentError(f"the keeper at {self.address}: {error}") from error
        except (OSError, ValueError) as error:
            raise SilentError(f"the keeper at {self.address} does not answer: {error}") from error


def _read_status(stream: BinaryIO) -> tuple[float, dict[str, Any] | None]:
    words = _line_of(stream).split()
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


def _line_of(stream: BinaryIO) -> str:
    line = stream.readline(MAX_ANSWER).decode("ascii", "replace").strip()
    if not line:
        raise SilentError("the keeper hung up")
    if why := why_refused(line):
        raise KeeperError(f"the keeper says: {why}")
    return line


def _message(stream: BinaryIO) -> FromKeeper:
    return parse_from_keeper(_line_of(stream).encode())
