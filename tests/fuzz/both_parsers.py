"""The option and the comment, read by spec.py and by the plugin's spec.c: both must agree.

The C code is called in this process, as a library without sanitizers: those have targets in C.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import TypeVar

from bftrainer_slurm.spec import (
    Request,
    Spec,
    SpecError,
    TrainerRecord,
    format_comment,
    parse_comment,
    parse_spec,
)
from tests.fuzz.native import built
from tests.fuzz.promises import one_line, promise

MICROS = 1_000_000
_MAX_GRACE_S = 30
_ERROR_SIZE = 256
_RECORD_SIZE = 1025
_MAX_SIZES = 32

Read = TypeVar("Read")


class _Spec(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in ("weight", "grace", "node_hours"))


class _Sizes(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint * _MAX_SIZES),
        ("count", ctypes.c_uint),
        ("step", ctypes.c_uint),
    )


class _Request(ctypes.Structure):
    _fields_ = (
        ("spec", _Spec),
        ("min_nodes", ctypes.c_uint),
        ("sizes", _Sizes),
        ("own_rendezvous", ctypes.c_bool),
        ("no_resume", ctypes.c_bool),
        ("batch", ctypes.c_char * 5),
    )


class _Record(ctypes.Structure):
    _fields_ = (
        ("spec", _Spec),
        ("min_nodes", ctypes.c_uint),
        ("max_nodes", ctypes.c_uint),
        ("minutes", ctypes.c_uint),
        ("personal", ctypes.c_bool),
        ("partitions", ctypes.c_char * _RECORD_SIZE),
        ("nodes", ctypes.c_char * _RECORD_SIZE),
        ("sizes", _Sizes),
        ("has_task", ctypes.c_bool),
        ("task", ctypes.c_uint),
        ("id", ctypes.c_char * 9),
    )


def option(data: bytes) -> None:
    """Read ``--bftrainer=DATA`` by both."""
    raw = data.partition(b"\0")[0]
    ours = _or_error(lambda: parse_spec(os.fsdecode(raw), _MAX_GRACE_S))
    theirs = option_in_c(raw, _MAX_GRACE_S)
    promise(ours == theirs, f"Python says {ours!r}, C says {theirs!r}")


def comment(data: bytes) -> None:
    """Read a comment by both, also one that says that it is a trainer's."""
    for raw in (data.partition(b"\0")[0], b"bftrainer:" + data.partition(b"\0")[0]):
        ours = _or_error(lambda raw=raw: parse_comment(os.fsdecode(raw)))  # type: ignore[misc]
        theirs = comment_in_c(raw)
        promise(ours == theirs, f"Python says {ours!r}, C says {theirs!r}")
        if isinstance(ours, TrainerRecord):
            promise(parse_comment(format_comment(ours)) == ours, "written and read, it is another")
        # What squeue prints has lost the bytes that were no text.
        _or_error(lambda raw=raw: parse_comment(raw.decode("utf-8", "replace")))  # type: ignore[misc]


def _or_error(read: Callable[[], Read]) -> Read | str:
    try:
        return read()
    except SpecError as error:
        one_line(str(error))
        return str(error)


def option_in_c(raw: bytes, max_grace_s: float) -> Request | str:
    """Return what the plugin reads, or its error."""
    request, error = _Request(), ctypes.create_string_buffer(_ERROR_SIZE)
    if not _library().spec_parse(raw, round(max_grace_s * MICROS), ctypes.byref(request), error):
        return error.value.decode("ascii")
    return Request(
        _spec(request.spec),
        min_nodes=request.min_nodes,
        sizes=_sizes(request.sizes),
        step=request.sizes.step,
        own_rendezvous=request.own_rendezvous,
        no_resume=request.no_resume,
        batch=request.batch.decode("ascii"),
    )


def comment_in_c(raw: bytes) -> TrainerRecord | str:
    """Return what the plugin reads, or its error."""
    record, error = _Record(), ctypes.create_string_buffer(_ERROR_SIZE)
    if not _library().record_parse(raw, ctypes.byref(record), error):
        return error.value.decode("ascii")
    text = ctypes.create_string_buffer(_RECORD_SIZE)
    _library().record_format(ctypes.byref(record), text)
    ours = TrainerRecord(
        min_nodes=record.min_nodes,
        max_nodes=record.max_nodes,
        spec=_spec(record.spec),
        minutes=record.minutes or None,
        personal=record.personal,
        partitions=tuple(filter(None, record.partitions.decode("ascii").split(":"))),
        nodes=record.nodes.decode("ascii").replace(":", ","),
        sizes=_sizes(record.sizes),
        step=record.sizes.step,
        task=record.task if record.has_task else None,
        id=record.id.decode("ascii") or None,
    )
    promise(text.value.decode("ascii") == format_comment(ours), "C writes it another way")
    return ours


def _spec(spec: _Spec) -> Spec:
    return Spec(spec.weight / MICROS, spec.grace / MICROS, spec.node_hours / MICROS or None)


def _sizes(sizes: _Sizes) -> tuple[int, ...]:
    return tuple(sizes.size[: sizes.count])


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(built("libspec.so")))
    for parse in (library.spec_parse, library.record_parse):
        parse.restype = ctypes.c_bool
    library.spec_parse.argtypes = (
        *(ctypes.c_char_p, ctypes.c_int64, ctypes.POINTER(_Request), ctypes.c_char_p),
    )
    return library
