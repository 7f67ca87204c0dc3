"""The lines of plugstack.conf that name our plugin. Pure; ``gather`` reads the files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

_OURS = "bftrainer.so"


@dataclass(frozen=True, slots=True)
class PluginLine:
    """One line: how it is listed, which file, and its settings by name."""

    listed: str  # optional or required
    path: str
    options: Mapping[str, str] = field(default_factory=dict)
    text: str = ""


def our_lines(lines: Iterable[str]) -> tuple[PluginLine, ...]:
    """Return the lines that name our plugin."""
    found = []
    for line in lines:
        words = line.partition("#")[0].split()
        if len(words) > 1 and PurePath(words[1]).name == _OURS:
            options = dict(word.partition("=")[::2] for word in words[2:])
            found.append(PluginLine(words[0].lower(), words[1], options, line.strip()))
    return tuple(found)


def included(line: str) -> str | None:
    """Return the pattern of files that a line includes, None: it includes none."""
    words = line.partition("#")[0].split()
    return words[1] if len(words) == 2 and words[0].lower() == "include" else None
