"""Paths in a script that differ from node to node of a trainer, and from start to start.

Each element has a job id of its own, and runs the script at a time of its own: who resumes from a
folder that is named for one of these finds nothing there. And a PYTHONPATH in which Python does not
find us: then each node trains alone.
"""

from __future__ import annotations

import re

_JOB_ID = r"(?<!:-)\$(?:SLURM_JOB_?ID\b|\{SLURM_JOB_?ID\b)"
_DATE = r"(?:\$\(\s*date\b|`\s*date\b)"
_CHANGING = re.compile(rf"{_JOB_ID}|{_DATE}")
# What one word of a shell may hold: quoted parts and $(...) with spaces in them too.
_WORD = re.compile(r"""(?:"[^"\n]*"|'[^'\n]*'|\$\([^)\n]*\)|`[^`\n]*`|[^\s;|&<>"'`])+""")
_PRINTS = re.compile(r"\s*(?:echo|printf|logger|scontrol|squeue|sacct|seff|scancel|sstat)\b")
# The node's own disk or memory: nobody resumes from there.
_ON_THE_NODE = re.compile(
    r"""[^/]*=?["']?(?:/tmp\b|/var/tmp\b|/dev/shm\b|\$\{?(?:TMPDIR|SLURM_TMPDIR)\b)"""
)
# A variable or an option for a folder or file: RUN_DIR=run-$SLURM_JOB_ID, --save-path=...
_NAMES_ONE = re.compile(
    r"[\w-]*(?:dir|directory|folder|path|root|out|output|ckpt|checkpoint|checkpoints|save)=", re.I
)
_NO_PATH = re.compile(r"--(?:rdzv|master|job|run)[-_]?(?:id|name|port|addr|endpoint)\b|://")
# PYTHONPATH is set, without what it was.
_HIDES_US = re.compile(r"(?<![\w$])PYTHONPATH=(?!.*\$\{?PYTHONPATH\b)", re.ASCII)
_SRUN = re.compile(r"\bsrun\b", re.ASCII)


def warnings(script: str, srun_mends: bool = True) -> list[str]:
    """Return a line for the first path of each kind; none for what is only printed or local.

    ``srun_mends``: whether srun puts us into PYTHONPATH again, as it does with the plugin.
    """
    found: dict[str, str] = {}
    hidden: list[tuple[int, bool]] = []  # lines, and whether srun starts what they hide us from
    has_srun = False
    for number, line in enumerate(script.splitlines(), 1):
        code = re.sub(r"(^|\s)#.*", "", line)
        if _PRINTS.match(code):
            continue
        srun, hides = _SRUN.search(code), _HIDES_US.search(code)
        has_srun |= srun is not None
        if hides is not None:
            hidden.append((number, srun is not None and srun.start() < hides.start()))
        for word in _WORD.findall(code):
            changing = _CHANGING.search(word)
            if changing is None or not _is_path(word):
                continue
            kind = "the time" if changing[0][:2] in ("$(", "`d", "` ") else "$SLURM_JOB_ID"
            found.setdefault(kind, _said(kind, number))
    mended = has_srun and srun_mends
    hidden_in = [number for number, behind_srun in hidden if behind_srun or not mended]
    return [*found.values(), *map(_says_hidden, hidden_in[:1])]


def _is_path(word: str) -> bool:
    rest = _CHANGING.sub("", word)
    return bool(
        ("/" in rest or _NAMES_ONE.match(rest))
        and not _ON_THE_NODE.match(word)
        and not _NO_PATH.search(word)
    )


def _says_hidden(number: int) -> str:
    return (
        f"line {number} sets PYTHONPATH anew, which hides BFTrainer from torchrun and Python "
        "there: they end, or each node trains alone; write PYTHONPATH=...:$PYTHONPATH"
    )


def _said(kind: str, number: int) -> str:
    instead = (
        "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}, which is the trainer's number"
        if kind == "$SLURM_JOB_ID"
        else "$SLURM_ARRAY_JOB_ID, the trainer's number"
    )
    return (
        f"line {number} has {kind} in a path: it is another one on each node and at each start; "
        f"to resume from there, write {instead}"
    )
