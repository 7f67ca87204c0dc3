"""A copy of the project that every Unix user can read, if the clone is in a private folder.

Slurm's users must be able to run the trainers' Python, but cannot enter a folder like /root.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scripts.labcluster.users import as_user

REPO = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Stage:
    """Where users find the project: ``bin`` has bftrainer and torchrun, for their PATH."""

    repo: Path
    bin: Path

    @property
    def program(self) -> Path:
        """The project's own command."""
        return self.bin / "bftrainer"


def staged(folder: Path, user: str) -> Stage:
    """Return a stage that ``user`` can use: the clone itself, if that user can read it.

    Otherwise files are hard-linked (or copied, on another file system) into ``folder``.
    """
    reads = [*as_user(user), f"{REPO}/.venv/bin/python", "-c", "import bftrainer_slurm"]
    with suppress(PermissionError):
        if subprocess.run(reads, capture_output=True, cwd="/").returncode == 0:
            return Stage(REPO, REPO / ".venv" / "bin")
    copy = folder / "project"
    copy.mkdir(parents=True)
    for name in (".venv", "bftrainer_slurm", "examples", "build"):
        if (REPO / name).exists():
            both = [REPO / name, copy / name]
            linked = subprocess.run(["cp", "-al", "--", *both], capture_output=True)
            if linked.returncode != 0:  # another file system
                subprocess.run(["rm", "-rf", "--", both[1]], check=True)
                subprocess.run(["cp", "-a", "--", *both], check=True)
    binaries = folder / "bin"
    binaries.mkdir()
    # The first line of the copied commands names the private folder; these wrappers do not.
    for name, module in (("bftrainer", "bftrainer_slurm"), ("torchrun", "torch.distributed.run")):
        wrapper = binaries / name
        wrapper.write_text(
            # After the entries that an element has there already.
            f'#!/bin/sh\nPYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{copy}"'
            f' exec "{copy}/.venv/bin/python" -m {module} "$@"\n'
        )
        wrapper.chmod(0o755)
    return Stage(copy, binaries)
