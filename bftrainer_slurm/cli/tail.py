"""Reads files while they are written: whole lines, as they come."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_MOST_BYTES = 32 * 2**20  # of a file, from its end


class Tail:
    """One file; each line is given once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.changed_s = 0.0
        self._read = 0
        self._begun = b""  # a line that has no end yet

    def lines(self, *, last: bool = False) -> list[str]:
        """Return the new lines, none if there is no file; with the ``last`` one even if unfinished.

        Raises:
            OSError: it cannot be read, or is no plain file.
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
            data = self._begun + file.read(_MOST_BYTES)
            self._read = file.tell()
        *whole, self._begun = data.split(b"\n")
        if skipped:
            whole = whole[1:]  # nobody knows where the first line began
        if last and self._begun:
            whole, self._begun = [*whole, self._begun], b""
        return [line.decode("utf-8", "replace") for line in whole]
