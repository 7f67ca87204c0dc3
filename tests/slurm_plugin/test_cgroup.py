"""Ending all that is in a cgroup, of both versions, without Slurm."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root: it makes cgroups")

# Forks for ever, and ends by no signal but SIGKILL.
FORKER = """perl -e '$SIG{TERM} = $SIG{CHLD} = "IGNORE"; print "ready\\n"; close STDOUT;
while (1) { if (!fork) { select undef, undef, undef, 0.02; exit } }'"""


@pytest.fixture(scope="module")
def library(built_part: Callable[[str], Path]) -> ctypes.CDLL:
    found = ctypes.CDLL(str(built_part("cgroup")))
    for name in ("cgroup_of", "cgroup_add", "cgroup_kill"):
        getattr(found, name).restype = ctypes.c_bool
    return found


def cgroup_of(library: ctypes.CDLL, version: int, pid: int) -> Path | None:
    path = ctypes.create_string_buffer(4096)
    return Path(os.fsdecode(path.value)) if library.cgroup_of(version, pid, path) else None


@pytest.fixture(params=[1, 2])
def folder(request: pytest.FixtureRequest, library: ctypes.CDLL) -> Iterator[Path]:
    """A cgroup of one's own, with another one in it."""
    here = cgroup_of(library, request.param, os.getpid())
    if here is None:
        pytest.skip(f"this host has no cgroups of version {request.param}")
    own = here / f"bftrainer-test-{os.getpid()}"
    (own / "below").mkdir(parents=True)
    yield own
    (own / "below").rmdir()
    own.rmdir()


def started_in(library: ctypes.CDLL, folder: Path) -> subprocess.Popen[str]:
    command = f"read go; {FORKER}"
    process = subprocess.Popen(
        ["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert library.cgroup_add(os.fsencode(folder), process.pid)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    assert process.stdout.readline() == "ready\n"
    return process


def test_nothing_in_it_or_below_escapes_by_forking_and_nobody_else_is_hit(
    library: ctypes.CDLL, folder: Path
) -> None:
    inside = [started_in(library, folder), started_in(library, folder / "below")]
    version = 2 if (folder / "cgroup.events").exists() else 1
    assert cgroup_of(library, version, inside[1].pid) == folder / "below"
    with subprocess.Popen(["sleep", "1000"]) as bystander:
        try:
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            assert library.cgroup_kill(opened)
            os.close(opened)
            assert [one.wait() for one in inside] == [-signal.SIGKILL] * 2
            assert bystander.poll() is None
        finally:
            bystander.kill()
