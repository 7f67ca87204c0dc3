"""Waits for the torchrun of this node's first task, in place of the other tasks of a step.

Run by its text, with the variable that numbers the tasks. It needs nothing: a task that waits
keeps no memory of a GPU.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

_ROUND_S = 1.0
_SAME = ("SLURM_JOB_ID", "SLURM_STEP_ID")


def is_there(folder: Path, wanted: set[bytes]) -> bool:
    """Whether a process's first environment has all these variables."""
    try:
        return wanted <= set((folder / "environ").read_bytes().split(b"\0"))
    except OSError:  # it has ended, or is somebody else's
        return False


def main() -> None:
    """Return when no process of the first task is left; srun tells that task's exit code."""
    same = {f"{name}={os.environ[name]}" for name in _SAME if name in os.environ}
    wanted = {text.encode() for text in same | {f"{sys.argv[1]}=0"}}
    processes = Path("/proc")
    while any(is_there(one, wanted) for one in processes.iterdir() if one.name.isdecimal()):
        time.sleep(_ROUND_S)


if __name__ == "__main__":
    main()
