"""What slurmctld says that the controller costs it, and the command that asks."""

from __future__ import annotations

import os
from pathlib import Path

from scripts.slurmctld_load import Requests, requests_of
from tests.tools import run_tool

SDIAG = """\
Remote Procedure Call statistics by message type
\tREQUEST_JOB_INFO                        ( 2003) count:30     ave_time:100    total_time:3000
Remote Procedure Call statistics by user
\troot            (       0) count:12     ave_time:150    total_time:1800
\tslurm           (     110) count:42     ave_time:200    total_time:8400
\tslurm2          (     111) count:7      ave_time:200    total_time:1400
"""


def test_an_accounts_requests_and_their_time_are_read() -> None:
    assert requests_of("slurm", SDIAG) == Requests(42, 8.4)
    assert requests_of("lurm", SDIAG) == requests_of("alice", SDIAG) == Requests(0, 0.0)


def test_a_cluster_that_does_not_start_is_said_in_a_line(tmp_path: Path) -> None:
    broken = tmp_path / "make"  # which builds the plugin
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = run_tool("bench-slurmctld", "--nodes=1", "--jobs=100", env=os.environ | {"PATH": path})
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("Error: ")
