"""Reads the output of a trainer's elements with the user's own rights.

``logs`` reads whole lines as they come, ``show`` the end of the file that was written last.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bftrainer_slurm.elastic.log import WAITS
from bftrainer_slurm.slurm.gateway import GatewayError
from bftrainer_slurm.slurm.outputs import Output, outputs_of
from bftrainer_slurm.slurm.run import SlurmRunner

_MOST_BYTES = 32 * 2**20  # of a file, from its end
_MOST_LINES = 20  # of the last output
_PATIENCE_S = 10.0
_WAITS = f"bftrainer: {WAITS}"


class Tail:
    """One file; each line is given once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.changed_s = 0.0
        self._read = 0
        self._begun = b""  # a line that has no end yet

    def lines(self, *, last: bool = False) -> list[str]:
        """Return the new lines, none without a file; with ``last`` also an unfinished last line.

        Raises:
            OSError: the file cannot be read, or is no plain file.
        """
        try:
            # Without waiting: a pipe that nobody writes to would never open.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(0, "not a plain file", str(self.path))
            self.changed_s = status.st_mtime
            if status.st_size < self._read:  # somebody started the file again
                self._read, self._begun = 0, b""
            skipped = status.st_size - self._read > _MOST_BYTES
            if skipped:
                self._read, self._begun = status.st_size - _MOST_BYTES, b""
            file.seek(self._read)
            data = (self._begun + file.read(_MOST_BYTES))[-_MOST_BYTES:]
            self._read = file.tell()
        *whole, self._begun = data.split(b"\n")
        if skipped:
            whole = whole[1:]  # nobody knows where the first line began
        if last and self._begun:
            whole, self._begun = [*whole, self._begun], b""
        return [line.decode("utf-8", "replace") for line in whole]


@dataclass(frozen=True, slots=True)
class LastOutput:
    """A file and its last lines; no lines if this user cannot read it here."""

    path: str
    lines: tuple[str, ...]


def last_output(array: int) -> LastOutput | None:
    """Return the file that a trainer's elements wrote to last, None if Slurm knows none.

    Costs slurmctld one RPC.
    """
    try:
        return newest_output(outputs_of(SlurmRunner(_PATIENCE_S), array))
    except GatewayError:
        return None


def folder_exists(path: str) -> bool:
    """Return whether a file's folder exists, as far as this user can see."""
    try:
        Path(path).parent.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def newest_output(outputs: Sequence[Output]) -> LastOutput | None:
    """Return the file that was written last; if none can be read, any that was written to.

    Lines about waiting nodes are left out: they say nothing about the script. A file with only our
    own lines counts only if there is no other.
    """
    found: list[tuple[tuple[bool, float], LastOutput]] = []
    for path in dict.fromkeys(path for one in outputs for path in one.paths):
        tail = Tail(path)
        with contextlib.suppress(OSError):
            lines = [line for line in tail.lines(last=True) if line.strip() and line != _WAITS]
            if lines:
                theirs = any(not line.startswith("bftrainer: ") for line in lines)
                last = LastOutput(str(path), tuple(lines[-_MOST_LINES:]))
                found.append(((theirs, tail.changed_s), last))
    if found:
        return max(found, key=lambda pair: pair[0])[1]
    ran_first = sorted(outputs, key=lambda one: not one.node)
    return next((LastOutput(str(path), ()) for one in ran_first for path in one.paths), None)
