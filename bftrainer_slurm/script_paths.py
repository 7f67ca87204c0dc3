"""Warns of two faults in a script: paths that change, and a PYTHONPATH that hides this package.

Each element has a job id of its own, and runs the script at its own time. A script that resumes
from a folder named for one of these finds nothing there. If Python cannot find this package, each
node trains alone.
"""

from __future__ import annotations

import re

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


def warnings(script: str) -> list[str]:
    """Return a warning for the first fault of each kind; ignore printed texts and local paths.

    Without the plugin, no srun puts this package into PYTHONPATH again.
    """
    found: dict[str, str] = {}
    hidden = list[str]()
    for number, line in enumerate(script.splitlines(), 1):
        code = re.sub(r"(^|\s)#.*", "", line)
        if _PRINTS.match(code):
            continue
        if _HIDES_US.search(code):
            hidden.append(_hidden_warning(number))
        for word in _WORD.findall(code):
            changing = _CHANGING.search(word)
            if changing is None or not _is_path(word):
                continue
            kind = "the time" if changing[0][:2] in ("$(", "`d", "` ") else "$SLURM_JOB_ID"
            found.setdefault(kind, _path_warning(kind, number))
    return [*found.values(), *hidden[:1]]


def _is_path(word: str) -> bool:
    rest = _CHANGING.sub("", word)
    return bool(
        ("/" in rest or _NAMES_ONE.match(rest))
        and not _ON_THE_NODE.match(word)
        and not _NO_PATH.search(word)
    )


def _hidden_warning(number: int) -> str:
    return (
        f"line {number} sets PYTHONPATH anew, which hides BFTrainer from torchrun and Python "
        "there: they end, or each node trains alone; write PYTHONPATH=...:$PYTHONPATH"
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
