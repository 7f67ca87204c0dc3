"""Makes a patch of the files on this host from the changes. Pure: it edits nothing."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

from bftrainer_slurm.doctor.facts import ConfigFile
from bftrainer_slurm.doctor.finding import (
    CGROUP_CONF,
    OURS,
    PLUGSTACK,
    SCHEDULER,
    SLURM_CONF,
    Change,
    Finding,
    Level,
)

_FILES = (SLURM_CONF, CGROUP_CONF, PLUGSTACK, OURS)


def patch(findings: Iterable[Finding], files: Mapping[str, Sequence[ConfigFile]]) -> str:
    """Return a unified diff; comments name changes of files elsewhere, and commands to run."""
    changes = [
        change
        for finding in findings
        if finding.level is Level.CHANGE
        for change in finding.changes
    ]
    parts: list[str] = []
    for kind in _FILES:
        wanted = [change for change in changes if change.file == kind]
        for file in files.get(kind, ()):
            text = file.text
            for change in list(wanted):
                changed = _applied(text, change, last=file is files[kind][-1])
                if changed is not None:
                    text = changed
                    wanted.remove(change)
            parts += _diff(file, text)
        parts += [f"# in {kind}, which is not on this host: {one.line}\n" for one in wanted]
    commands = dict.fromkeys(change.line for change in changes if change.file not in _FILES)
    parts += [f"# run: {command}\n" for command in commands]
    return "".join(parts)


def _diff(file: ConfigFile, text: str) -> list[str]:
    """Return the lines of a diff, empty if nothing has changed."""
    before = "/dev/null" if not file.text else str(file.path)
    old, new = file.text.splitlines(keepends=True), text.splitlines(keepends=True)
    lines = difflib.unified_diff(old, new, before, str(file.path))
    return [
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    ]


def _applied(text: str, change: Change, *, last: bool) -> str | None:
    """Return a file's text after the change, None if the change belongs to another file."""
    if change.file == PLUGSTACK and change.within:
        return _changed_plugin_line(text, change)
    if change.within == SCHEDULER:
        found = _find_line(text, rf"{SCHEDULER}[ \t]*=")
        if found is None:
            return _appended(text, f"{SCHEDULER}={change.setting}")
        words = found[0].partition("=")[2].replace("\\\n", "").split(",")
        others = [one for one in map(str.strip, words) if one and one.split("=")[0] != change.key]
        return _replaced(text, found, f"{SCHEDULER}={','.join([*others, change.setting])}")
    if change.within:
        return _changed_partition(text, change)
    if change.file == PLUGSTACK or change.key == "PartitionName":
        return _appended(text, change.line) if last else None
    found = _find_line(text, rf"{re.escape(change.key)}[ \t]*=")
    return _appended(text, change.line) if found is None else _replaced(text, found, change.line)


def _find_line(text: str, begin: str) -> re.Match[str] | None:
    """Return the line that begins with ``begin``, in upper or lower case, as Slurm reads it.

    The line may continue after a backslash. Its comment is left out.
    """
    rest = r"(?:[^\n#]*\\\n)*[^\n#]*?(?=[ \t]*(?:#|$))"
    return re.search(rf"^[ \t]*{begin}{rest}", text, re.MULTILINE | re.IGNORECASE)


def _changed_partition(text: str, change: Change) -> str | None:
    found = _find_line(text, rf"{re.escape(change.within)}(?=\s)")
    if found is None:
        return None
    setting = re.compile(rf"(?<=\s){re.escape(change.key)}=\S+", re.IGNORECASE)
    changed, count = setting.subn(change.setting.replace("\\", r"\\"), found[0])
    return _replaced(text, found, changed if count else f"{changed} {change.setting}")


def _changed_plugin_line(text: str, change: Change) -> str | None:
    found = _find_line(text, rf"\w+[ \t]+(?-i:{re.escape(change.within)})(?=\s|$)")
    if found is None:
        return None
    words = found[0].split()
    if change.key == "optional":
        return _replaced(text, found, " ".join(["optional", *words[1:]]))
    others = [word for word in words if word.partition("=")[0] != change.key]
    return _replaced(text, found, " ".join([*others, change.setting]))


def _replaced(text: str, found: re.Match[str], line: str) -> str:
    return text[: found.start()] + line + text[found.end() :]


def _appended(text: str, line: str) -> str:
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{line}\n"
