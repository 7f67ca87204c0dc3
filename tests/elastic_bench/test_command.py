"""``scripts/run bench-elastic`` as it is called."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from bftrainer_slurm.elastic.processes import processes_with
from scripts.labcluster.waiting import wait_until
from tests.tools import tool

pytestmark = pytest.mark.torch


def nodes_of(bench: int) -> list[int]:
    """Return the processes of the nodes that a benchmark has started."""
    jobs = [f"SLURM_JOB_ID={bench}{number:05d}" for number in range(1, 9)]
    return [process for job in jobs for process in processes_with(job)]


def test_nothing_is_left_behind_when_it_is_stopped() -> None:
    command, null = tool("bench-elastic", "--setup", "handler"), subprocess.DEVNULL
    with subprocess.Popen(command, stdout=null, stderr=null) as bench:
        try:
            wait_until(lambda: nodes_of(bench.pid))
            [folder] = {path.parent for path in Path("/dev/shm").glob(f"fleet-*/{bench.pid}*")}
            bench.send_signal(signal.SIGTERM)
            assert bench.wait(120) != 0
            wait_until(lambda: nodes_of(bench.pid) == [])
            assert not folder.exists()
        finally:
            bench.kill()
            for process in nodes_of(bench.pid):
                os.kill(process, signal.SIGKILL)
