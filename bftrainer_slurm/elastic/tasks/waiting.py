"""Waits for the launcher of this node's first task, in place of the other tasks of a step.

Run by its text, with a process's number, or what the first task's environment has. It needs
nothing: a task that waits keeps no memory of a GPU.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

_ROUND_S = 1.0
_SAME = ("SLURM_JOB_ID", "SLURM_STEP_ID")
_PROC = Path("/proc")


def processes(environment: Mapping[str, str], *variables: str) -> Iterator[int]:
    """Yield this step's processes on this node that have been started with these variables."""
    same = [f"{name}={environment[name]}" for name in _SAME if name in environment]
    wanted = {text.encode() for text in (*same, *variables)}
    for folder in folders():
        try:
            if wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                yield int(folder.name)
        except OSError:  # it has ended, or is somebody else's
            pass


def folders() -> Iterator[Path]:
    """Yield the folders of this node's processes."""
    return (folder for folder in _PROC.iterdir() if folder.name.isdecimal())


def main() -> None:
    """Return when that process, or all of the first task, have ended; srun tells their code."""
    process = sys.argv[1]
    while (
        (_PROC / process).exists()
        if process.isdecimal()
        else any(processes(os.environ, *process.split(",")))
    ):
        time.sleep(_ROUND_S)


if __name__ == "__main__":
    main()
