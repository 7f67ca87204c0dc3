"""Reads plugstack.conf, the files that it includes, and the lines of our plugin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath

_PLUGIN = "bftrainer.so"
_PYXIS = "spank_pyxis.so"
_MOST_LEVELS = 5  # of includes in included files


@dataclass(frozen=True, slots=True)
class PluginLine:
    """One line of plugstack.conf: optional or required, the file, and its settings by name."""

    listed: str  # "optional" or "required"
    path: str
    options: Mapping[str, str] = field(default_factory=dict)
    text: str = ""


def our_lines(lines: Iterable[str]) -> tuple[PluginLine, ...]:
    """Return those of these lines that name our plugin."""
    found = []
    for line in lines:
        words = line.partition("#")[0].split()
        if len(words) > 1 and PurePath(words[1]).name == _PLUGIN:
            options = dict(word.partition("=")[::2] for word in words[2:])
            found.append(PluginLine(words[0].lower(), words[1], options, line.strip()))
    return tuple(found)


def included(line: str) -> str | None:
    """Return the pattern of files that a line includes, None if it includes none."""
    words = line.partition("#")[0].split()
    return words[1] if len(words) == 2 and words[0].lower() == "include" else None


def read_lines(path: Path, deepest: int = _MOST_LEVELS) -> Iterator[tuple[Path, str]]:
    """Yield each line of a file with its path; after an include the included files' lines.

    Slurm reads them in this order.

    Raises:
        OSError: a file cannot be read.
    """
    for line in path.read_text(errors="replace").splitlines():
        yield path, line
        for one in _files(path, line) if deepest else ():
            yield from read_lines(one, deepest - 1)


def _files(path: Path, line: str) -> list[Path]:
    """Return the files that a line of the file ``path`` includes."""
    pattern = Path(included(line) or "")
    return sorted((path.parent / pattern.parent).glob(pattern.name)) if pattern.name else []


def pyxis_after_ours(lines: Iterable[str]) -> str:
    """Return the line that loads pyxis after our plugin; empty if none does."""
    ours = False
    for line in lines:
        words = line.partition("#")[0].split()
        if ours and len(words) > 1 and PurePath(words[1]).name == _PYXIS:
            return line.strip()
        ours = ours or bool(our_lines([line]))
    return ""
