"""``scripts/run bench-elastic`` as it is called."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts.labcluster.waiting import wait_until
from tests.tools import tool

pytestmark = pytest.mark.torch


@contextmanager
def started(*options: str) -> Iterator[subprocess.Popen[str]]:
    """Start a benchmark, and end it and all that it has started."""
    bench = subprocess.Popen(
        tool("bench-elastic", *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield bench
    finally:
        bench.kill()
        for process in nodes_of(bench.pid):
            os.kill(process, signal.SIGKILL)
        bench.communicate()


def nodes_of(bench: int) -> list[int]:
    """Return the processes of the nodes that a benchmark has started."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                variables = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(one.startswith(f"SLURM_JOB_ID={bench}0".encode()) for one in variables):
                found.append(int(folder.name))
    return found


def test_nothing_is_left_behind_when_it_is_stopped() -> None:
    with started("--setup", "handler") as bench:
        wait_until(lambda: nodes_of(bench.pid))
        [folder] = {path.parent for path in Path("/dev/shm").glob(f"fleet-*/{bench.pid}*")}
        bench.send_signal(signal.SIGTERM)
        assert bench.wait(120) != 0
        wait_until(lambda: nodes_of(bench.pid) == [])
        assert not folder.exists()
