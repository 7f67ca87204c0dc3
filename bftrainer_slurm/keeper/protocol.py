"""The keeper's line protocol: which requests there are, how they are read, and what a note is.

A request is one ASCII line of at most 512 bytes. Anybody who can reach the port can send any
bytes, so every field must match a narrow pattern, and a note without a proof is only a hint.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from urllib.parse import quote, unquote

VERSION = 5  # of the messages between members and keeper: both must have the same
GREETING = b"member %d" % VERSION  # the first line that a member sends
MAX_LINE = 512
MAX_NOTE = 8_192  # a line of the stream that ``watch`` returns
STILL_HERE_S = 5.0  # that stream has an empty line after all notes so far, and each so often
MAX_TEXT = 2_000  # bytes of a failure's text
MAX_DOCUMENT = 8 * 1024 * 1024
MAX_MEASURES = 8  # in one report

# What has started a training, as users see it; a note has the place in this list.
LAUNCHERS = (
    *("", "torchrun", "torch.distributed.launch", "accelerate", "deepspeed", "llamafactory"),
    *("torchtune", "lightning", "srun python", "python"),
)

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")  # of a node
_WHOLE = re.compile(r"[0-9]{1,15}\Z")
_MEASURE = re.compile(r"([a-z_]{1,20})=(-?[0-9]{1,15}(?:\.[0-9]{1,12})?)\Z")


class ProtocolError(ValueError):
    """A line that the keeper refuses. The message is its answer; it counts refusals by ``kind``."""

    def __init__(self, why: str, kind: str = "malformed") -> None:
        super().__init__(why)
        self.kind = kind


class NoteKind(Enum):
    """What a note can be about."""

    UP = "up"  # the batch script is about to start on this node
    LEAVING = "leaving"  # SIGTERM has come: the node is reclaimed, or the trainer shrinks
    GONE = "gone"  # the batch script has ended
    SUBMITTED = "submitted"  # there may be a new trainer in the queue
    ANNOUNCED = "announced"  # there may be a new job of any kind
    # From authenticated members of a group only:
    PROGRESS = "progress"  # samples and steps so far, where known, and other measures
    FAILED = "failed"  # a member's workers failed, and no loss of another member explains it
    FINISHED = "finished"  # a member has ended well
    SCRIPT = "script"  # which task runs a batch script for all, and whether it trains (1)
    REFORMED = "reformed"  # a new generation began: its number, nodes, mode (1: in process)


@dataclass(frozen=True, slots=True)
class Note:
    """One note. ``text`` is the end of a failed script's output; it may hold any characters."""

    kind: NoteKind
    array: int = 0
    task: int = 0
    node: str = ""
    measures: tuple[tuple[str, float], ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class NumberedNote:
    """A note as the keeper stores it, with its number in order and its time (Unix seconds)."""

    number: int
    time_s: float
    note: Note


def parse_hint(words: list[str]) -> Note:
    """Read the words of a line that anybody may send. The note is only a hint.

    Raises:
        ProtocolError: it is not such a line.
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
        ProtocolError: it is not a note.
    """
    match words:
        case [("progress" | "reformed" | "script") as kind, array, *measures] if measures:
            return Note(NoteKind(kind), whole(array), measures=_measures(measures))
        case ["finished", array, task]:
            return Note(NoteKind.FINISHED, whole(array), whole(task))
        case ["failed", array, task, node, *text] if len(text) <= 1:
            said = unquote("".join(text))
            return Note(NoteKind.FAILED, whole(array), whole(task), word(node), text=said)
    return parse_hint(words)


def format_note(note: Note) -> str:
    """Return the line for a note, without the line end."""
    match note.kind:
        case NoteKind.SUBMITTED | NoteKind.ANNOUNCED as kind:
            return str(kind.value)
        case NoteKind.PROGRESS | NoteKind.REFORMED | NoteKind.SCRIPT:
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
    """Return one line of the stream that ``watch`` returns, without the line end."""
    return f"{numbered.number} {numbered.time_s:.6f} {format_note(numbered.note)}"


def whole(text: str) -> int:
    """Read a whole number of at most 15 digits."""
    if not _WHOLE.match(text):
        raise ProtocolError("not a whole number")
    return int(text)


def word(text: str) -> str:
    """Check the name of a node."""
    if not NAME.match(text):
        raise ProtocolError("not a name")
    return text


def parse_address(text: str) -> tuple[str, int]:
    """Split ``HOST:PORT``.

    Raises:
        ProtocolError: it is not an address.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not host or not _WHOLE.match(port) or not 0 <= int(port) < 65536:
        raise ProtocolError(f"'{text[:80]}' is not HOST:PORT")
    return host, int(port)


def parse_addresses(text: str) -> tuple[tuple[str, int], ...]:
    """Split ``HOST:PORT,HOST:PORT``: the addresses of a keeper, in the order to try them.

    Raises:
        ProtocolError: one of them is not an address.
    """
    return tuple(parse_address(one) for one in text.split(","))


def _measures(texts: list[str]) -> tuple[tuple[str, float], ...]:
    if len(texts) > MAX_MEASURES:
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
