"""The lines spoken with the keeper: what may be asked, how it is read, what is remembered.

One ASCII line of at most 512 bytes each way. Whoever can reach the port can send any bytes, so
everything is matched against a narrow pattern, and a note is never more than a hint.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

MAX_LINE = 512
MAX_DOCUMENT = 8 * 1024 * 1024

_WORD = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_WHOLE = re.compile(r"[0-9]{1,15}\Z")
_MEASURE = re.compile(r"([a-z_]{1,20})=(-?[0-9]{1,12}(?:\.[0-9]{1,12})?)\Z")
_MAX_MEASURES = 8


class ProtocolError(ValueError):
    """A line that the keeper does not take; the message is the keeper's answer."""


class NoteKind(Enum):
    """What an element, or a submission, can tell."""

    UP = "up"  # the batch script is about to start on this node
    LEAVING = "leaving"  # SIGTERM has come: reclaimed, or shrunk
    GONE = "gone"  # the batch script has ended
    SUBMITTED = "submitted"  # a trainer may be new in the queue
    PROGRESS = "progress"  # samples trained so far


@dataclass(frozen=True, slots=True)
class Note:
    """One thing told. ``measures`` holds ``samples``, and what else a progress note brought."""

    kind: NoteKind
    array: int = 0
    task: int = 0
    node: str = ""
    measures: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class NumberedNote:
    """A note as the keeper remembers it: in which order, and when (Unix seconds) it came."""

    number: int
    time_s: float
    note: Note


def parse_note(words: list[str]) -> Note:
    """Read the words of a line that tells something.

    Raises:
        ProtocolError: not a note.
    """
    match words:
        case ["submitted"]:
            return Note(NoteKind.SUBMITTED)
        case [("up" | "leaving" | "gone") as kind, array, task, node]:
            return Note(NoteKind(kind), whole(array), whole(task), word(node))
        case ["progress", array, *measures] if 1 <= len(measures) <= _MAX_MEASURES:
            return Note(NoteKind.PROGRESS, whole(array), measures=_measures(measures))
    raise ProtocolError("not a request that the keeper knows")


def format_note(note: Note) -> str:
    """Return the line for a note, without its end."""
    if note.kind is NoteKind.SUBMITTED:
        return "submitted"
    if note.kind is NoteKind.PROGRESS:
        measures = " ".join(f"{name}={_decimal(value)}" for name, value in note.measures)
        return f"progress {note.array} {measures}"
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


def _measures(texts: list[str]) -> tuple[tuple[str, float], ...]:
    found: dict[str, float] = {}
    for text in texts:
        match = _MEASURE.match(text)
        if match is None:
            raise ProtocolError("a measure is NAME=NUMBER")
        found[match[1]] = float(match[2])
    if found.get("samples", -1.0) < 0:
        raise ProtocolError("progress needs samples=NUMBER")
    return tuple(found.items())


def _decimal(value: float) -> str:
    return f"{value:.9f}".rstrip("0").rstrip(".")
