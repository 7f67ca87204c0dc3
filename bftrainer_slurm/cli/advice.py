"""Advice on a failing script, by the script's last output. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

_SEEN_BY_NODES = "keep it in a folder that all nodes see"
_SMALLER = "use a smaller batch on each process, or a node with more memory"
# The first match counts: causes come before their consequences.
_ADVICE: tuple[tuple[str, str], ...] = (
    (
        r"torchrun: (?:command not found|No such file)|activate: No such file",
        f"activate your Python environment in the script, and {_SEEN_BY_NODES}",
    ),
    (
        r"No module named '?(?P<what>[\w.]+)",
        "install {what} in the Python environment that the script activates, and " + _SEEN_BY_NODES,
    ),
    (
        r"there is no script (?P<what>\S+)|can't open file '(?P<file>[^']+)'",
        "give torchrun the path of a script that all nodes see; a relative path begins in the "
        "folder where sbatch was called",
    ),
    (r"(?i:out of memory|oom.?kill)|OutOfMemoryError|MemoryError|can't allocate memory", _SMALLER),
    (
        r"environment variable RANK expected",
        "start the script with 'srun torchrun train.py': a plain python gets no ranks",
    ),
    (
        r"checkpoint being loaded used a DP world size of",
        "DeepSpeed's ZeRO loads a checkpoint only on as many ranks as have saved it: convert it "
        "with ds_to_universal.py and load it with load_universal_checkpoint, or name the numbers "
        "of nodes that work (--bftrainer=sizes=4)",
    ),
    (
        r"connectFullMesh failed|Unable to find (?:address|interface) for",
        "set GLOO_SOCKET_IFNAME in the script to the interface by which all nodes reach each other "
        "('ip -br address' on a node lists them); if that is right, tell your admin that the nodes "
        "do not reach each other, as behind a firewall",
    ),
    (
        r"SIGKILL|exitcode: -9\b|Killed$",
        f"something killed the process, most often because memory ran out: {_SMALLER}",
    ),
)


def advice(last_words: Sequence[str]) -> str | None:
    """Return what to do, in a sentence; None if nothing in these lines is known."""
    for pattern, remedy in _ADVICE:
        for line in last_words:
            if match := re.search(pattern, line):
                return remedy.format(**match.groupdict())
    return None
