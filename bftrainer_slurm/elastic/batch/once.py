"""Whether a batch script runs on one of its trainer's nodes alone, or on each of them.

A script that runs on one node starts its training by srun, does not write to a node's own disk or
memory, which other nodes do not see, and is not written for each node. Standard library only: a
system's Python runs this (3.10 or later), before each batch script.
"""

from __future__ import annotations

import os
import re

from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.script_paths import hidden_warning

MOST = 1 << 20  # bytes of a script; the rest is ignored

# A node's own disks and memory, and how scripts name them.
_OWN = {
    "/tmp": ("/tmp", "TMPDIR", "SLURM_TMPDIR", "LOCAL_SCRATCH", "LSCRATCH", "JOBFS", "sbcast"),
    "/var/tmp": ("/var/tmp",),
    "/dev/shm": ("/dev/shm",),
    "/local": ("/local",),
    "/lscratch": ("/lscratch",),
    "/localscratch": ("/localscratch",),
    "/local_scratch": ("/local_scratch",),
}


def runs_once(path: str, wanted: str, tells: bool) -> bool:
    """Return whether a script runs on one node, and say what its user has to know.

    ``wanted``: "once" or "each", or "any" where the script itself decides. ``tells``: whether to
    say why it runs on each node. What hides this package is said in any case: if a program has
    called sbatch, nobody has seen sbatch's message.
    """
    text = _read(path)
    hidden = hidden_warning(text, plugin=True)
    if hidden:
        say(hidden)
    if wanted != "any":
        return wanted == "once"
    why = _why_each(text)
    if why and tells:
        say(f"this script {why}: all of it runs on each node")
    return not why


def _read(path: str) -> str:
    """Return a script's text; empty if it cannot be read."""
    try:
        with open(path, "rb") as script:  # noqa: PTH123 (pathlib takes milliseconds to import)
            return script.read(MOST).decode(errors="replace")
    except OSError:
        return ""


def _why_each(text: str) -> str:
    """Return why a script runs on each node, to follow "this script"; empty if it need not."""
    code = re.sub(r"(?m)^[ \t\r]*#.*", "", text)
    if not _has(code, "srun"):
        return "has no srun"
    if _has(code, "BFTRAINER_FIRST"):
        return "asks for BFTRAINER_FIRST"
    for folder, words in _OWN.items():
        if any(_has(code, word) for word in words) and _is_own(folder):
            return "uses a node's own disk (/tmp, $TMPDIR or the like)"
    return ""


def _has(code: str, word: str) -> bool:
    return re.search(rf"(?<!\w){word}(?!\w)", code, re.ASCII) is not None


def _is_own(folder: str) -> bool:
    """All nodes see the job's working folder, and so everything on the same file system."""
    try:
        return os.stat(folder).st_dev != os.stat(".").st_dev  # noqa: PTH116
    except OSError:
        return False
