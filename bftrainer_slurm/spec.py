"""The text of ``--bftrainer[=KEY=VALUE,...]`` and of the comment that a trainer's elements carry.

The only parser of both. Nothing here talks to Slurm. It also runs with a login node's Python 3.9.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

KEYS = (
    "weight",
    "grace",
    "node_hours",
    "samples",
    "by",
    "noise",
    "min",
    "sizes",
    "step",
    "rendezvous",
    "resume",
    "batch",
)
EXAMPLE = "--bftrainer=weight=2,grace=5"
MAX_TEXT = 256
MAX_RECORD = 1024
MAX_COMMENT = 1024  # bytes with the user's own; Slurm refuses more
MAX_SIZES = 32
MAX_WEIGHT = 1000.0
DEFAULT_WEIGHT = 1.0
DEFAULT_GRACE_S = 0.5
DEFAULT_MAX_GRACE_S = 30.0
MAX_NODES = 1_000_000
_MAX_SAMPLES = 1e15
_MAX_AHEAD_S = 366 * 86_400.0  # of a deadline

_COMMENT_PREFIX = "bftrainer:"
# Sites put words of their own before it or behind it.
_RECORD = re.compile(r"(?<![A-Za-z0-9_])bftrainer:[^ ]*")
_NUMBER = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?\Z")
_WHOLE = re.compile(r"[0-9]{1,7}\Z")
_LONG = re.compile(r"[0-9]{1,15}\Z")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?\Z")
_AHEAD = re.compile(r"\+([0-9]{1,4})([mhd])\Z")
_UNITS_S = {"m": 60.0, "h": 3600.0, "d": 86_400.0}
_ID = re.compile(r"[0-9a-f]{8}\Z")
# Lists, in which the record has a colon where Slurm has a comma.
_PARTITIONS = re.compile(r"[A-Za-z0-9_.+@/-]+(:[A-Za-z0-9_.+@/-]+)*\Z")
_NODES = re.compile(r"([A-Za-z0-9_.:-]|\[[0-9:-]+\])+\Z")
# What the plugin receives for an option given without a value, see PLUGIN.md.
_BARE = ("", "(null)")


class SpecError(ValueError):
    """A spec or a comment that is not what it should be; the message says what to write."""


@dataclass(frozen=True)
class Spec:
    """What a user asks for: weight in the plan, and how many seconds to end when reclaimed.

    ``node_hours`` is how much it may use in all, None for no limit. ``samples`` is how many it has
    to train, None if that is not known, and ``by_s`` is its deadline (Unix seconds), None for none.
    ``noise`` is its gradient noise scale in samples, None if it is to be measured.
    """

    weight: float = DEFAULT_WEIGHT
    grace_s: float = DEFAULT_GRACE_S
    node_hours: float | None = None
    samples: float | None = None
    by_s: float | None = None
    noise: float | None = None

    def rate_needed(self, samples: float, now_s: float) -> float | None:
        """Return the samples/s from now on that meet the deadline, if so many are trained.

        None: there is no deadline, it is over, or all samples are trained.
        """
        if self.samples is None or self.by_s is None:
            return None
        left, left_s = self.samples - samples, self.by_s - now_s
        return left / left_s if left > 0 and left_s > 0 else None


@dataclass(frozen=True)
class Request:
    """The value of ``--bftrainer``: the spec, and what only the submission needs.

    ``min_nodes`` is the least number of nodes, 0 if it is not given. ``sizes`` are the only numbers
    of nodes to use, or all are multiples of ``step``. ``own_rendezvous``: torchrun keeps its own;
    ``no_resume``: no framework is made to go on from its newest checkpoint;
    ``batch``: whether the script runs ``once`` or on ``each`` node; empty: as the site has it.
    """

    spec: Spec = Spec()
    min_nodes: int = 0
    sizes: tuple[int, ...] = ()
    step: int = 1
    own_rendezvous: bool = False
    no_resume: bool = False
    batch: str = ""


@dataclass(frozen=True)
class TrainerRecord:
    """What Slurm has no field for, kept in the comment of every element of a trainer.

    ``minutes`` is the time limit the user asked for (None: the partition's); backfill shortens
    the limit of an element that starts, and this is what it is lengthened to again.
    ``personal`` marks trainers that only their owner's own controller runs. ``partitions`` and
    ``nodes`` (a list as Slurm writes it): it runs only there, anywhere if empty. Its number of
    nodes is one of ``sizes``, if there are any, and a multiple of ``step``. ``task`` is the one of
    the user's own ``--array`` that it is. ``id`` is drawn at submission, eight hexadecimal digits:
    slurmctld gives a job id twice after it lost its state.
    """

    min_nodes: int
    max_nodes: int
    spec: Spec = Spec()
    minutes: int | None = None
    personal: bool = False
    partitions: tuple[str, ...] = ()
    nodes: str = ""
    sizes: tuple[int, ...] = ()
    step: int = 1
    task: int | None = None
    id: str | None = None

    @property
    def anchor(self) -> int:
        """The task that never trains, one more than there are nodes for.

        It starts only when the training has finished, as the last one, and ends at once.

        The last task of an array to start has the array's own job id: who requeues it by that id
        (``scontrol requeue $SLURM_JOB_ID``) requeues all others too.
        """
        return self.max_nodes

    @property
    def shown(self) -> dict[str, Any]:
        """What the user has asked for, as a status shows it: the controller's, or Slurm's alone."""
        return {
            "min_nodes": self.min_nodes,
            "max_nodes": self.max_nodes,
            "sizes": list(self.sizes),
            "step": self.step,
            "weight": self.spec.weight,
            "grace_s": self.spec.grace_s,
            "node_hours": self.spec.node_hours,
            "wanted_samples": self.spec.samples,
            "by_s": self.spec.by_s,
            "start_minutes": self.minutes,
            "partitions": list(self.partitions),
            "node_list": self.nodes,
        }


def parse_spec(
    text: str | None, max_grace_s: float = DEFAULT_MAX_GRACE_S, now_s: float = 0.0
) -> Request:
    """Read the option's value; ``None``, the empty text and ``(null)`` mean the defaults.

    ``now_s`` is the time of the submission (Unix seconds); a deadline has to come after it.

    Raises:
        SpecError: in one line, naming the key and what to write instead.
    """
    if text is None or text in _BARE:
        return Request()
    readers: dict[str, Callable[[str], Any]] = {
        "weight": _weight,
        "grace": lambda value: _grace(value, max_grace_s),
        "node_hours": _node_hours,
        "samples": _samples,
        "by": lambda value: _by(value, now_s),
        "noise": _noise,
        "min": lambda value: _nodes_wanted("min", value),
        "sizes": _sizes,
        "step": lambda value: _nodes_wanted("step", value),
        "rendezvous": _rendezvous,
        "resume": _resume,
        "batch": _batch,
    }
    read: dict[str, Any] = {}
    _bound(text, MAX_TEXT)
    for key, value in _pairs(text).items():
        if key == "gpus":
            raise SpecError("unknown key 'gpus'; for K GPUs of each node write --gpus-per-node=K")
        if key not in readers:
            raise SpecError(f"unknown key '{_shown(key)}'; known keys: {', '.join(KEYS)}")
        read[key] = readers[key](value)
    if "by" in read and "samples" not in read:
        raise SpecError("by needs samples; write for example samples=2000000,by=+12h")
    if "sizes" in read and "step" in read:
        raise SpecError("sizes and step exclude each other; write one of them")
    return Request(
        _spec(read),
        min_nodes=read.get("min", 0),
        sizes=read.get("sizes", ()),
        step=read.get("step", 1),
        own_rendezvous=read.get("rendezvous", False),
        no_resume=read.get("resume", False),
        batch=read.get("batch", ""),
    )


def format_comment(record: TrainerRecord) -> str:
    """Return the comment for a trainer's elements: ``bftrainer:min=2,max=16,weight=1,...``."""
    fields = [
        f"min={record.min_nodes}",
        f"max={record.max_nodes}",
        f"weight={plain(record.spec.weight)}",
        f"grace={plain(record.spec.grace_s)}",
    ]
    if record.spec.node_hours is not None:
        fields.append(f"node_hours={plain(record.spec.node_hours)}")
    if record.spec.samples is not None:
        fields.append(f"samples={plain(record.spec.samples)}")
    if record.spec.by_s is not None:
        fields.append(f"by={plain(record.spec.by_s)}")
    if record.spec.noise is not None:
        fields.append(f"noise={plain(record.spec.noise)}")
    if record.minutes is not None:
        fields.append(f"minutes={record.minutes}")
    if record.personal:
        fields.append("personal=1")
    if record.partitions:
        fields.append(f"partitions={':'.join(record.partitions)}")
    if record.nodes:
        fields.append(f"nodes={record.nodes.replace(',', ':')}")
    if record.sizes:
        fields.append(f"sizes={':'.join(map(str, record.sizes))}")
    if record.step > 1:
        fields.append(f"step={record.step}")
    if record.task is not None:
        fields.append(f"task={record.task}")
    if record.id is not None:
        fields.append(f"id={record.id}")
    return _COMMENT_PREFIX + ",".join(fields)


def is_trainer_comment(comment: str) -> bool:
    """Whether this comment claims to be a trainer's; it may still be malformed."""
    return _COMMENT_PREFIX in comment and _RECORD.search(comment) is not None


def parse_comment(comment: str) -> TrainerRecord:
    """Read the first record in a comment back, wherever it stands; it ends at a space.

    Users can write comments too, so nothing in it is trusted.

    Raises:
        SpecError: not a comment that ``format_comment`` could have written.
    """
    match = _RECORD.search(comment)
    if match is None:
        raise SpecError("not a trainer's comment")
    text = match[0]
    _bound(text, MAX_RECORD)
    values = _pairs(text.removeprefix(_COMMENT_PREFIX))
    readers: dict[str, Callable[[str], Any]] = {
        "min": _count,
        "max": _count,
        "weight": _weight,
        "grace": lambda value: _grace(value, float("inf")),
        "node_hours": _node_hours,
        "samples": _samples,
        "by": _time_s,
        "noise": _noise,
        "minutes": _count,
        "personal": _flag,
        "partitions": read_partitions,
        "nodes": read_node_list,
        "sizes": _sizes,
        "step": _count,
        "task": _task,
        "id": _id,
    }
    read: dict[str, Any] = {}
    for key, value in values.items():
        if key not in readers:
            raise SpecError(f"unknown key '{_shown(key)}' in a trainer's comment")
        read[key] = readers[key](value)
    if "min" not in read or "max" not in read or read["min"] > read["max"]:
        raise SpecError("a trainer's comment needs min and max, min not above max")
    least, most = read["min"], read["max"]
    sizes, step = read.get("sizes", ()), read.get("step", 1)
    if (sizes and (step > 1 or (sizes[0], sizes[-1]) != (least, most))) or (
        least % step or most % step
    ):
        raise SpecError("sizes and step of a trainer's comment do not fit its min and max")
    return TrainerRecord(
        min_nodes=least,
        max_nodes=most,
        spec=_spec(read),
        minutes=read.get("minutes"),
        personal=read.get("personal", False),
        partitions=read.get("partitions", ()),
        nodes=read.get("nodes", ""),
        sizes=sizes,
        step=step,
        task=read.get("task"),
        id=read.get("id"),
    )


def own_comment(comment: str) -> str:
    """Return the user's part of a comment: all but the record, and what the site has added."""
    match = _RECORD.search(comment)
    if match is None:
        return comment
    around = comment[: match.start()].rstrip(" "), comment[match.end() + 1 :]
    return " ".join(filter(None, around))


def with_own_comment(record: str, own: str) -> str:
    """Return a comment with a record, and behind it as much as fits of the user's own."""
    room = max(0, MAX_COMMENT - len(record) - 1)
    kept = own.encode("utf-8", "surrogateescape")[:room].decode("utf-8", "ignore")
    return f"{record} {kept}" if kept else record


def read_partitions(text: str) -> tuple[str, ...]:
    """Read a list of partitions that has colons, or commas as Slurm's has.

    Raises:
        SpecError: not one.
    """
    if not _PARTITIONS.match(text.replace(",", ":")):
        raise SpecError(f"'{_shown(text)}' is not a list of partitions")
    return tuple(text.replace(",", ":").split(":"))


def read_node_list(text: str) -> str:
    """Read a list of nodes that has colons, or commas as Slurm's has; return Slurm's.

    Raises:
        SpecError: not one.
    """
    if not _NODES.match(text.replace(",", ":")):
        raise SpecError(f"'{_shown(text)}' is not a list of nodes")
    return text.replace(":", ",")


def _spec(read: dict[str, Any]) -> Spec:
    return Spec(
        read.get("weight", DEFAULT_WEIGHT),
        read.get("grace", DEFAULT_GRACE_S),
        read.get("node_hours"),
        read.get("samples"),
        read.get("by"),
        read.get("noise"),
    )


def _bound(text: str, most: int) -> None:
    if len(text.encode("utf-8", "surrogateescape")) > most:
        raise SpecError(f"longer than {most} characters; write for example {EXAMPLE}")


def _pairs(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not key or not equals or not value:
            raise SpecError(f"'{_shown(part)}' is not KEY=VALUE; write for example {EXAMPLE}")
        if key in values:
            raise SpecError(f"key '{_shown(key)}' is given twice")
        values[key] = value
    return values


def _weight(value: str) -> float:
    if not _NUMBER.match(value) or not 0 < float(value) <= MAX_WEIGHT:
        raise SpecError(
            f"weight={_shown(value)} is not a positive number up to 1000; "
            "write for example weight=2"
        )
    return float(value)


def _grace(value: str, max_grace_s: float) -> float:
    if not _NUMBER.match(value):
        raise SpecError(
            f"grace={_shown(value)} is not a number of seconds; write for example grace=5"
        )
    if float(value) > max_grace_s:
        raise SpecError(
            f"grace={_shown(value)} is more than this site allows; "
            f"write grace={plain(max_grace_s)} or less"
        )
    return float(value)


def _node_hours(value: str) -> float:
    if not _NUMBER.match(value) or not float(value) > 0:
        raise SpecError(
            f"node_hours={_shown(value)} is not a positive number; write for example node_hours=100"
        )
    return float(value)


def _samples(value: str) -> float:
    if not _LONG.match(value) or not 1 <= float(value) <= _MAX_SAMPLES:
        raise SpecError(
            f"samples={_shown(value)} is not a number of samples; write for example samples=2000000"
        )
    return float(value)


def _noise(value: str) -> float:
    if not _LONG.match(value) or not 1 <= float(value) <= _MAX_SAMPLES:
        raise SpecError(
            f"noise={_shown(value)} is not a number of samples; write for example noise=4000"
        )
    return float(value)


def _time_s(value: str) -> float:
    if not _LONG.match(value):
        raise SpecError(f"'{_shown(value)}' is not a time in Unix seconds")
    return float(value)


def _by(value: str, now_s: float) -> float:
    """Read a time of the submitting host, or how far it is ahead; return Unix seconds."""
    by_s = None
    if ahead := _AHEAD.match(value):
        by_s = now_s + int(ahead[1]) * _UNITS_S[ahead[2]]
    elif _DATE.match(value):
        from datetime import datetime  # takes 2 ms, and elements need this module

        with suppress(ValueError):
            by_s = datetime.fromisoformat(value).timestamp()
    if by_s is None:
        raise SpecError(
            f"by={_shown(value)} is not a time; write for example by=2026-12-01T08:00 or by=+12h"
        )
    if not now_s < by_s <= now_s + _MAX_AHEAD_S:
        raise SpecError(f"by={_shown(value)} is not within the next year; write a later time")
    return float(round(by_s))


def _nodes_wanted(key: str, value: str) -> int:
    try:
        return _count(value)
    except SpecError as error:
        raise SpecError(
            f"{key}={_shown(value)} is not a number of nodes; write for example {key}=4"
        ) from error


def _sizes(value: str) -> tuple[int, ...]:
    parts = value.split(":")
    try:
        sizes = tuple(map(_count, parts[:MAX_SIZES]))
    except SpecError:
        sizes = ()
    if not sizes or len(parts) > MAX_SIZES or list(sizes) != sorted(set(sizes)):
        raise SpecError(
            f"sizes={_shown(value)} is not a list of ascending numbers of nodes, at most "
            f"{MAX_SIZES} of them; write for example sizes=2:4:8"
        )
    return sizes


def _rendezvous(value: str) -> bool:
    if value != "own":
        raise SpecError(
            f"rendezvous={_shown(value)} is not known; write rendezvous=own or leave it out"
        )
    return True


def _resume(value: str) -> bool:
    if value != "no":
        raise SpecError(f"resume={_shown(value)} is not known; write resume=no or leave it out")
    return True


def _batch(value: str) -> str:
    if value not in ("once", "each"):
        raise SpecError(f"batch={_shown(value)} is not known; write batch=once or batch=each")
    return value


def _count(value: str) -> int:
    if not _WHOLE.match(value) or not 1 <= int(value) <= MAX_NODES:
        raise SpecError(f"'{_shown(value)}' is not a count")
    return int(value)


def _task(value: str) -> int:
    if not _WHOLE.match(value):
        raise SpecError(f"'{_shown(value)}' is not a task of an array")
    return int(value)


def _flag(value: str) -> bool:
    if value != "1":
        raise SpecError(f"'{_shown(value)}' is not a flag")
    return True


def _id(value: str) -> str:
    if not _ID.match(value):
        raise SpecError(f"'{_shown(value)}' is not an id of eight hexadecimal digits")
    return value


def plain(number: float) -> str:
    """Return a number as a spec writes it: ``2``, ``0.5``."""
    return f"{number:.6f}".rstrip("0").rstrip(".")


def _shown(text: str) -> str:
    """Printable ASCII, other bytes as ``?``, at most 40 characters: safe for a terminal."""
    raw = text.encode("utf-8", "surrogateescape")[:40]
    return "".join(chr(byte) if 32 <= byte < 127 else "?" for byte in raw)
