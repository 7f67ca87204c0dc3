"""Reads logs while they are written. No torch here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def last_lines(log: Path, count: int) -> str:
    """Return the last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:])


class Tail:
    """The lines in the files of a folder, each once."""

    def __init__(self, folder: Path, pattern: str = "*") -> None:
        self._folder = folder
        self._pattern = pattern
        self._read_to: dict[Path, int] = {}

    def read(self) -> Iterator[tuple[Path, list[str]]]:
        """Yield the files with their new lines; half a line waits for its rest."""
        for path in self._folder.glob(self._pattern):
            with path.open("rb") as file:
                file.seek(self._read_to.get(path, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            if whole:
                self._read_to[path] = self._read_to.get(path, 0) + len(whole)
                yield path, whole.decode().splitlines()
