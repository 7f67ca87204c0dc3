"""The targets in C: built by slurm_plugin/Makefile, with libFuzzer or a main of their own."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent.parent
SOURCES = REPO / "slurm_plugin"
BUILD = REPO / "build" / "fuzz"


class BuildError(Exception):
    """A target could not be built; the message is the compiler's."""


@cache
def spec_library() -> Path:
    """Build and return spec.c as a library.

    Raises:
        BuildError: it cannot be built.
    """
    return _made(BUILD / "libspec.so")


def guided(name: str) -> Path:
    """Build and return a target that libFuzzer drives.

    Raises:
        BuildError: there is no clang, or it cannot be built.
    """
    if not can_be_guided():
        raise BuildError("no clang here; with Debian: apt-get install clang")
    return _made(BUILD / f"libfuzzer_{name}")


def plain(name: str) -> Path:
    """Build and return a target with a main of its own, see fuzz_replay.c.

    Raises:
        BuildError: it cannot be built.
    """
    return _made(BUILD / f"fuzz_{name}")


def can_be_guided() -> bool:
    """Whether targets in C can learn from their coverage here."""
    return shutil.which("clang") is not None


def _made(path: Path) -> Path:
    command = ["make", "-s", "-C", str(SOURCES), f"BUILD={path.parent}", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise BuildError(done.stderr.strip() or f"make: exit code {done.returncode}")
    return path
