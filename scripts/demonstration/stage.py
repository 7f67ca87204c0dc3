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
    for name in (".venv", "bftrainer_slurm", "examples", "pyproject.toml"):
        _link_or_copy(repo / name, copy / name)
    binaries = folder / "bin"
    binaries.mkdir()
    # The copied commands name the closed folder in their first line; these do not.
    for name, module in (("bftrainer", "bftrainer_slurm"), ("torchrun", "torch.distributed.run")):
        wrapper = binaries / name
        wrapper.write_text(
            f'#!/bin/sh\nPYTHONPATH="{copy}" exec "{copy}/.venv/bin/python" -m {module} "$@"\n'
        )
        wrapper.chmod(0o755)
    return Stage(copy, binaries)


def _can_read(repo: Path, user: str) -> bool:
    python = repo / ".venv" / "bin" / "python"
    probe = (
        subprocess.run(
            [python, "-c", "import bftrainer_slurm"], user=user, cwd="/", capture_output=True
        )
        if _may_enter(repo, user)
        else None
    )
    return probe is not None and probe.returncode == 0


def _may_enter(repo: Path, user: str) -> bool:
    return subprocess.run(["test", "-x", repo], user=user, cwd="/").returncode == 0


def _link_or_copy(source: Path, target: Path) -> None:
    same_file_system = source.stat().st_dev == target.parent.stat().st_dev
    flags = "-al" if same_file_system else "-a"
    subprocess.run(["cp", flags, "--", source, target], check=True)
