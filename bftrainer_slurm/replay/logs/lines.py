"""Text lines of a log, plain or gzipped, streamed and bounded.

A hostile or binary file costs no more memory than the longest allowed line.
"""

from __future__ import annotations

import errno
import gzip
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

LONGEST_LINE = 1 << 20
_TOLD_EVERY = 1 << 20
_BLANK = " \t\r\n\ufeff"  # the last: what some editors put first into a file

Lines = Iterator[tuple[int, str]]


def read_lines(path: Path, advance: Callable[[int], None] = lambda _: None) -> Lines:
    """Yield line number (from 1) and text of every line that is not empty.

    ``advance`` is called now and then with how many more bytes of the file have been read. A line
    longer than ``LONGEST_LINE`` arrives in pieces, under one number. Raises OSError, also for a
    device: /dev/zero has no end.
    """
    if path.is_char_device() or path.is_block_device():
        raise OSError(errno.EINVAL, "not a file", str(path))
    with path.open("rb") as raw:
        told = 0
        number, whole = 1, True
        for piece in _pieces(raw):
            if text := piece.decode("utf-8", "replace").strip(_BLANK):
                yield number, text
            whole = piece.endswith(b"\n")
            number += whole
            if (now := raw.tell()) - told >= _TOLD_EVERY:
                advance(now - told)
                told = now
        advance(raw.tell() - told)


def unzipped(raw: BufferedReader) -> BinaryIO:
    """Return the content of an open file, gzipped or not."""
    if raw.peek(2)[:2] != b"\x1f\x8b":
        return raw
    return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]


def _pieces(raw: BufferedReader) -> Iterator[bytes]:
    stream = unzipped(raw)
    while piece := stream.readline(LONGEST_LINE):
        yield piece
