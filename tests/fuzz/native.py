"""The targets in C: built by slurm_plugin/Makefile, with libFuzzer or a main of their own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
SOURCES = REPO / "slurm_plugin"
BUILD = REPO / "build" / "fuzz"


class BuildError(Exception):
    """A target could not be built; the message is the compiler's."""


def can_be_guided() -> bool:
    """Whether targets in C can learn from their coverage here."""
    return shutil.which("clang") is not None


def built(name: str) -> Path:
    """Build and return what slurm_plugin/Makefile has in its build folder under this name.

    Raises:
        BuildError: it cannot be built.
    """
    path = BUILD / name
    command = ["make", "-s", "-C", str(SOURCES), f"BUILD={path.parent}", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise BuildError(done.stderr.strip() or f"make: exit code {done.returncode}")
    return path
