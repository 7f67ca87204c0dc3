"""Warns of two faults in a script: paths that change, and a PYTHONPATH that hides this package.

Each element has a job id of its own, and runs the script at its own time. A script that resumes
from a folder named for one of these finds nothing there. If Python cannot find this package, each
node trains alone. Standard library only: nodes run it with their system's Python (3.9 or later).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_JOB_ID = r"(?<!:-)\$(?:SLURM_JOB_?ID\b|\{SLURM_JOB_?ID\b)"
_DATE = r"(?:\$\(\s*date\b|`\s*date\b)"
_CHANGING = re.compile(rf"{_JOB_ID}|{_DATE}")
# One word of a shell, with quoted parts and $(...), which may have spaces in them.
_WORD = re.compile(r"""(?:"[^"\n]*"|'[^'\n]*'|\$\([^)\n]*\)|`[^`\n]*`|[^\s;|&<>"'`])+""")
_PRINTS = re.compile(r"\s*(?:echo|printf|logger|scontrol|squeue|sacct|seff|scancel|sstat)\b")
# The node's own disk or memory: no script resumes from there.
_ON_THE_NODE = re.compile(
    r"""[^/]*=?["']?(?:/tmp\b|/var/tmp\b|/dev/shm\b|\$\{?(?:TMPDIR|SLURM_TMPDIR)\b)"""
)
# A variable or an option for a folder or file: RUN_DIR=run-$SLURM_JOB_ID, --save-path=...
_NAMES_ONE = re.compile(
    r"[\w-]*(?:dir|directory|folder|path|root|out|output|ckpt|checkpoint|checkpoints|save)=", re.I
)
_NO_PATH = re.compile(r"--(?:rdzv|master|job|run)[-_]?(?:id|name|port|addr|endpoint)\b|://")
# PYTHONPATH is set without its old value.
_HIDES_US = re.compile(r"(?<![\w$])PYTHONPATH=(?!.*\$\{?PYTHONPATH\b)", re.ASCII)
_SRUN = re.compile(r"\bsrun\b", re.ASCII)


def warnings(script: str, plugin: bool = False) -> list[str]:
    """Return a warning for the first fault of each kind; ignore printed texts and local paths."""
    found: dict[str, str] = {}
    for number, code in _commands(script):
        for word in _WORD.findall(code):
            changing = _CHANGING.search(word)
            if changing is None or not _is_path(word):
                continue
            kind = "the time" if changing[0][:2] in ("$(", "`d", "` ") else "$SLURM_JOB_ID"
            found.setdefault(kind, _path_warning(kind, number))
    hidden = hidden_warning(script, plugin)
    return [*found.values(), *([hidden] if hidden else [])]


def hidden_warning(script: str, plugin: bool) -> str:
    """Return the warning for a PYTHONPATH that hides this package; empty if none does.

    With the ``plugin`` srun puts the package back, unless PYTHONPATH is set behind it.
    """
    commands = list(_commands(script))
    hides = [
        (number, code[: at.start()]) for number, code in commands if (at := _HIDES_US.search(code))
    ]
    if plugin and any(_SRUN.search(code) for _, code in commands):
        hides = [(number, before) for number, before in hides if _SRUN.search(before)]
    if not hides:
        return ""
    return (
        f"line {hides[0][0]} sets PYTHONPATH anew, which hides BFTrainer from torchrun and Python "
        "there: they end, or each node trains alone; write PYTHONPATH=...:$PYTHONPATH"
    )


def _commands(script: str) -> Iterator[tuple[int, str]]:
    """Return the lines that do not only print, without comments, with their numbers."""
    for number, line in enumerate(script.split("\n"), 1):
        code = re.sub(r"(^|\s)#.*", "", line)
        if not _PRINTS.match(code):
            yield number, code


def _is_path(word: str) -> bool:
    rest = _CHANGING.sub("", word)
    return bool(
        ("/" in rest or _NAMES_ONE.match(rest))
        and not _ON_THE_NODE.match(word)
        and not _NO_PATH.search(word)
    )


def _path_warning(kind: str, number: int) -> str:
    instead = (
        "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}, which is the trainer's number"
        if kind == "$SLURM_JOB_ID"
        else "$SLURM_ARRAY_JOB_ID, the trainer's number"
    )
    return (
        f"line {number} has {kind} in a path: it is another one on each node and at each start; "
        f"to resume from there, write {instead}"
    )
