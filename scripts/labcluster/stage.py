"""A copy of the project that every Unix user can read, for clones that live in a private folder.

Slurm's users must be able to run the trainers' Python, and /root, say, is closed to them.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Stage:
    """Where users find the project: ``bin`` has bftrainer and torchrun, for their PATH."""

    repo: Path
    bin: Path


def staged(repo: Path, folder: Path, user: str | None) -> Stage:
    """Return a stage that ``user`` can use: the clone itself where it is open to that user.

    Otherwise files are hard-linked (or copied, on another file system) into ``folder``.
    """
    if user is None or _can_read(repo, user):
        return Stage(repo, repo / ".venv" / "bin")
    copy = folder / "project"
    copy.mkdir(parents=True)
    for name in (".venv", "bftrainer_slurm", "examples", "build"):
        if (repo / name).exists():
            _link_or_copy(repo / name, copy / name)
    binaries = folder / "bin"
    binaries.mkdir()
    # The copied commands name the closed folder in their first line; these do not.
    for name, module in (("bftrainer", "bftrainer_slurm"), ("torchrun", "torch.distributed.run")):
        wrapper = binaries / name
        wrapper.write_text(
            # Behind what an element has there already.
            f'#!/bin/sh\nPYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{copy}"'
            f' exec "{copy}/.venv/bin/python" -m {module} "$@"\n'
        )
        wrapper.chmod(0o755)
    return Stage(copy, binaries)


def _can_read(repo: Path, user: str) -> bool:
    if subprocess.run(["test", "-x", repo], user=user, cwd="/").returncode != 0:
        return False
    python = repo / ".venv" / "bin" / "python"
    probe = subprocess.run(
        [python, "-c", "import bftrainer_slurm"], user=user, cwd="/", capture_output=True
    )
    return probe.returncode == 0


def _link_or_copy(source: Path, target: Path) -> None:
    linked = subprocess.run(["cp", "-al", "--", source, target], capture_output=True)
    if linked.returncode != 0:  # another file system
        subprocess.run(["rm", "-rf", "--", target], check=True)
        subprocess.run(["cp", "-a", "--", source, target], check=True)
