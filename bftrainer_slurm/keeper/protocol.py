"""The lines spoken with the keeper: what may be asked, how it is read, what is remembered.

One ASCII line of at most 512 bytes each way. Whoever can reach the port can send any bytes, so
everything is matched against a narrow pattern, and a note is never more than a hint.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from urllib.parse import quote, unquote

MAX_LINE = 512
MAX_NOTE = 8_192  # a line of the stream that ``watch`` returns
MAX_TEXT = 2_000  # bytes of what a failure says
MAX_DOCUMENT = 8 * 1024 * 1024

_WORD = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_WHOLE = re.compile(r"[0-9]{1,15}\Z")
_MEASURE = re.compile(r"([a-z_]{1,20})=(-?[0-9]{1,15}(?:\.[0-9]{1,12})?)\Z")
_MAX_MEASURES = 8


class ProtocolError(ValueError):
    """A line that the keeper does not take; the message is the keeper's answer."""


class NoteKind(Enum):
    """What an element, or a submission, can tell."""

    UP = "up"  # the batch script is about to start on this node
    LEAVING = "leaving"  # SIGTERM has come: reclaimed, or shrunk
    GONE = "gone"  # the batch script has ended
    SUBMITTED = "submitted"  # a trainer may be new in the queue
    ANNOUNCED = "announced"  # any job may be
    # From authenticated members of a group only:
    PROGRESS = "progress"  # samples and steps so far, as far as they are known, and more
    FAILED = "failed"  # its workers ended badly, and no loss of others explains it
    FINISHED = "finished"  # it has ended well, as far as its group goes
    REFORMED = "reformed"  # a new generation stands: generation, nodes, mode (1: in process)


@dataclass(frozen=True, slots=True)
class Note:
    """One thing told. ``text`` is what a failed script said last: any characters of a user."""

    kind: NoteKind
    array: int = 0
    task: int = 0
    node: str = ""
    measures: tuple[tuple[str, float], ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody wants to know of the past; ``user`` None: they may see everything."""

    what: str
    since_s: float
    user: int | None


@dataclass(frozen=True, slots=True)
class NumberedNote:
    """A note as the keeper remembers it: in which order, and when (Unix seconds) it came."""

    number: int
    time_s: float
    note: Note


def parse_hint(words: list[str]) -> Note:
    """Read the words of a line that anybody may send: never more than a hint.

    Raises:
        ProtocolError: not such a line.
    """
    match words:
        case [("submitted" | "announced") as kind]:
            return Note(NoteKind(kind))
        case [("up" | "leaving" | "gone") as kind, array, task, node]:
            return Note(NoteKind(kind), whole(array), whole(task), word(node))
    raise ProtocolError("not a request that the keeper knows")


def parse_note(words: list[str]) -> Note:
    """Read the words of a note as the keeper passes it on.

    Raises:
        ProtocolError: not a note.
    """
    match words:
        case [("progress" | "reformed") as kind, array, *measures] if measures:
            return Note(NoteKind(kind), whole(array), measures=_measures(measures))
        case ["finished", array, task]:
            return Note(NoteKind.FINISHED, whole(array), whole(task))
        case ["failed", array, task, node, *text] if len(text) <= 1:
            said = unquote("".join(text))
            return Note(NoteKind.FAILED, whole(array), whole(task), word(node), text=said)
    return parse_hint(words)


def format_note(note: Note) -> str:
    """Return the line for a note, without its end."""
    match note.kind:
        case NoteKind.SUBMITTED | NoteKind.ANNOUNCED as kind:
            return str(kind.value)
        case NoteKind.PROGRESS | NoteKind.REFORMED:
            measures = " ".join(f"{name}={_decimal(value)}" for name, value in note.measures)
            return f"{note.kind.value} {note.array} {measures}"
        case NoteKind.FINISHED:
            return f"finished {note.array} {note.task}"
        case NoteKind.FAILED:
            text = quote(note.text.encode("utf-8", "replace")[-MAX_TEXT:], safe="")
            return f"failed {note.array} {note.task} {note.node} {text}".rstrip()
    return f"{note.kind.value} {note.array} {note.task} {note.node}"


def parse_numbered(line: str) -> NumberedNote:
    """Read one line of the stream that ``watch`` returns."""
    number, time_s, *words = line.split()
    return NumberedNote(whole(number), float(time_s), parse_note(words))


def format_numbered(numbered: NumberedNote) -> str:
    """Return one line of the stream that ``watch`` returns, without its end."""
    return f"{numbered.number} {numbered.time_s:.6f} {format_note(numbered.note)}"


def whole(text: str) -> int:
    """Read a whole number of at most 15 digits."""
    if not _WHOLE.match(text):
        raise ProtocolError("not a whole number")
    return int(text)


def word(text: str) -> str:
    """Check a node's name, a token or a run id."""
    if not _WORD.match(text):
        raise ProtocolError("not a name")
    return text


def parse_address(text: str) -> tuple[str, int]:
    """Split ``HOST:PORT``.

    Raises:
        ProtocolError: not an address.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not host or not _WHOLE.match(port) or not 0 <= int(port) < 65536:
        raise ProtocolError(f"'{text[:80]}' is not HOST:PORT")
    return host, int(port)


def parse_addresses(text: str) -> tuple[tuple[str, int], ...]:
    """Split ``HOST:PORT,HOST:PORT``: where a keeper may be, in the order to ask.

    Raises:
        ProtocolError: one of them is no address.
    """
    return tuple(parse_address(one) for one in text.split(","))


def _measures(texts: list[str]) -> tuple[tuple[str, float], ...]:
    if len(texts) > _MAX_MEASURES:
        raise ProtocolError("too many measures")
    found: dict[str, float] = {}
    for text in texts:
        match = _MEASURE.match(text)
        if match is None:
            raise ProtocolError("a measure is NAME=NUMBER")
        found[match[1]] = float(match[2])
    return tuple(found.items())


def _decimal(value: float) -> str:
    return f"{value:.9f}".rstrip("0").rstrip(".")
