"""What may stand on a line of the keeper's: its limits, its fields, and notes.

A connection's first line is ASCII words. After a proof (``credentials``) each line is one JSON
object: its key is the kind of a message, and its value has the fields. Anybody who can reach the
port can send any bytes: so each field's type says what it may hold, and a note without a proof is
only a hint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

VERSION = 13  # of what follows a hello: both sides must have the same
MAX_LINE = 512  # bytes of a line before a proof, its end included
MAX_MESSAGE = 65_536  # of a line to the keeper after it
MAX_ANSWER = 1_048_576  # of a line of the keeper's: a generation names all its members
STILL_HERE_S = 5.0  # a stream of notes has an empty line after all so far, and each so often
MAX_DOCUMENT = 8 * 1024 * 1024
MAX_ERROR = 2_000  # characters of a failure's last lines
MAX_MEASURES = 10  # in one report
MAX_MEASURE = 1e15
_MAX_WHOLE = 10**15

# What has started a training, as users see it; a note has the place in this list.
LAUNCHERS = (
    *("", "torchrun", "torch.distributed.launch", "accelerate", "deepspeed", "llamafactory"),
    *("torchtune", "lightning", "srun python", "python"),
)

NAME = r"[A-Za-z0-9._-]{1,64}\Z"  # of a node
_WHOLE = re.compile(r"[0-9]{1,15}\Z")
_MEASURE_NAME = re.compile(r"[a-z_]{1,20}\Z")

Made = TypeVar("Made")


class ProtocolError(ValueError):
    """A line that the keeper refuses. The message is its answer; it counts refusals by ``kind``."""

    def __init__(self, why: str, kind: str = "malformed") -> None:
        super().__init__(why)
        self.kind = kind


# What a field may hold, beside its type: each of these returns a function that reads one.


def whole_number(most: int = _MAX_WHOLE, least: int = 0) -> Callable[[object], int]:
    """Read a whole number between these."""

    def read(value: object) -> int:
        if type(value) is not int or not least <= value <= most:  # True is an int to isinstance
            raise ProtocolError(f"not a whole number from {least} to {most}")
        return value

    return read


def matching(pattern: str) -> Callable[[object], str]:
    """Read a text that matches from its beginning."""
    compiled = re.compile(pattern)

    def read(value: object) -> str:
        if not isinstance(value, str) or not compiled.match(value):
            raise ProtocolError("not a word that may stand there")
        return value

    return read


def one_of(*words: str) -> Callable[[object], str]:
    """Read one of these words."""
    return matching(rf"(?:{'|'.join(map(re.escape, words))})\Z")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ProtocolError("not a text")
    return value


def _end_of_text(value: object) -> str:
    return _text(value).encode("utf-8", "replace").decode()[-MAX_ERROR:]


def _measures(value: Any) -> tuple[tuple[str, float], ...]:
    found = dict(value)
    good = good_measures(found)
    if not len(value) == len(found) == len(good):
        raise ProtocolError(f"measures are {MAX_MEASURES} names with finite numbers below 1e15")
    return good


def good_measures(found: Mapping[Any, Any]) -> tuple[tuple[str, float], ...]:
    """Return the valid measures, ``MAX_MEASURES`` at most."""
    good = [(name, float(value)) for name, value in found.items() if _is_measure(name, value)]
    return tuple(good[:MAX_MEASURES])


def _is_measure(name: object, value: object) -> bool:
    if not isinstance(name, str) or not _MEASURE_NAME.match(name):
        return False
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < MAX_MEASURE  # not so of nan and inf, nor of integers beyond any float


EndOfText = Annotated[str, _end_of_text]
Name = Annotated[str, matching(NAME)]
Measures = Annotated[tuple[tuple[str, float], ...], _measures]


# Lines.


def write_line(found: Mapping[str, Any]) -> bytes:
    """Return an object with messages in it as a line, with its line end."""
    return _JSON.encode(found).encode() + b"\n"


def fields_of(message: Any) -> dict[str, Any]:
    """Return a message's values by their names."""
    return {name: getattr(message, name) for name in _readers(cast(Any, type(message)))}


_JSON = json.JSONEncoder(
    separators=(",", ":"),
    default=lambda one: sorted(one) if isinstance(one, frozenset) else fields_of(one),
)


def read_line(line: bytes, kinds: Mapping[str, type[Made]]) -> Made:
    """Read a message of one of these kinds.

    Raises:
        ProtocolError: it is not one.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("not JSON") from error
    kind = next(iter(found), None) if isinstance(found, dict) and len(found) == 1 else None
    if not isinstance(kind, str) or kind not in kinds:
        raise ProtocolError("not a message of this version")
    return read_fields(kinds[kind], found[kind])


def read_fields(made: type[Made], found: object) -> Made:
    """Return a message of these values, each as its field allows it."""
    if not isinstance(found, dict):
        raise ProtocolError(f"not the fields of a message '{made.__name__}'")
    try:
        readers = _readers(cast(Any, made)).items()
        return made(**{name: read(found[name]) for name, read in readers if name in found})
    except (TypeError, ValueError) as error:  # or a field is missing
        raise ProtocolError(f"not a message '{made.__name__}': {error}") from error


@cache
def _readers(made: Any) -> dict[str, Callable[[object], Any]]:
    """Return what reads each field of a message, as its type says."""
    return {name: reader(kind) for name, kind in get_type_hints(made, include_extras=True).items()}


_PLAIN: dict[Any, Callable[[object], Any]] = {
    int: whole_number(),
    str: _text,
    bool: lambda value: value is True,
}


def reader(kind: Any) -> Callable[[Any], Any]:
    """Return what reads a value of this type: what stands beside it, or as plain ones are read."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return cast(Callable[[Any], Any], inner[1])
    if origin in (Union, UnionType):  # or None
        read = reader(inner[0])
        return lambda value: None if value is None else read(value)
    if origin is frozenset or inner[1:] == (...,):
        each = reader(inner[0])
        return lambda value: origin(map(each, _list(value)))
    if origin is tuple or issubclass(kind, tuple):
        row = [reader(one) for one in inner or get_type_hints(kind, include_extras=True).values()]
        make = getattr(kind, "_make", tuple)
        return lambda value: make(one(of) for one, of in zip(row, _list(value), strict=True))
    if is_dataclass(kind):
        return lambda value: read_fields(cast(Any, kind), value)
    return cast(Callable[[Any], Any], _PLAIN.get(kind, kind))


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ProtocolError("not a list")
    return value


# Notes.


class NoteKind(str, Enum):
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
    LEFT = "left"  # a member has left as planned: its element does nothing, and has to be ended
    SCRIPT = "script"  # which task runs a batch script for all, and whether it trains (1)
    REFORMED = "reformed"  # a new generation began: its number, nodes, launcher, and its tasks
    CUT = "cut"  # nobody hears a task that took part, while others wait for it or go on without it
    BACK = "back"  # a task is heard again, or Slurm says that it is gone: no LEFT, no CUT holds


_name = matching(NAME)


@dataclass(frozen=True, slots=True)
class Note:
    """One note. ``text`` is the end of a failed script's output; it may hold any characters.

    ``tasks`` is an expression as Slurm writes it: ``0-4,7``.
    """

    kind: NoteKind
    array: int = 0
    task: int = 0
    node: Annotated[str, matching(rf"$|{NAME}")] = ""
    measures: Measures = ()
    text: EndOfText = ""
    tasks: Annotated[str, matching(r"[0-9,-]*\Z")] = ""


@dataclass(frozen=True, slots=True)
class NumberedNote:
    """A note as the keeper stores it, with its number in order and its time (Unix seconds)."""

    number: int
    time_s: float
    note: Note


NOTE = {"note": NumberedNote}


def parse_hint(words: list[str]) -> Note:
    """Read the words of a line that anybody may send. The note is only a hint.

    Raises:
        ProtocolError: it is not such a line.
    """
    match words:
        case ["submitted"]:
            return Note(NoteKind.SUBMITTED)
        case [("leaving" | "gone") as kind, array, task, node] if node:
            return Note(NoteKind(kind), whole(array), whole(task), _name(node))
    raise ProtocolError("not a request that the keeper knows")


def format_hint(note: Note) -> str:
    """Return the line of a note that anybody may send, without the line end."""
    where = f" {note.array} {note.task} {note.node}" if note.node else ""
    return note.kind.value + where


def whole(text: str) -> int:
    """Read a whole number of at most 15 digits."""
    if not _WHOLE.match(text):
        raise ProtocolError("not a whole number")
    return int(text)


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
