"""``scripts/run bench-impact`` as it is called, on a real Slurm."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from scripts.labcluster.processes import processes_with
from scripts.labcluster.waiting import wait_until
from tests.tools import run_tool, tool


@pytest.mark.slurm
@pytest.mark.once
def test_the_same_jobs_run_without_trainers_and_beside_them(tmp_path: Path) -> None:
    options = ("--quick", "--jobs", "2", "--nodes", "2", "--json")
    done = run_tool("bench-impact", *options, "--out", tmp_path, check=True)
    document = json.loads(done.stdout)
    off, on = document["sides"]["without"], document["sides"]["with"]
    assert [one["state"] for one in off["starts"] + on["starts"]] == ["COMPLETED"] * 4
    assert {"look", "pass", "submitted", "allocated", "known"} <= {one[1] for one in on["log"]}
    assert on["elements"]["at the begin"] > 0
    assert document["figures"]["idle node-seconds used, %"] > 0
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"table.txt", "results.json", "logs"}


@pytest.mark.slurm
@pytest.mark.once
def test_nothing_is_left_behind_when_it_is_stopped(tmp_path: Path) -> None:
    bench = subprocess.Popen(
        tool("bench-impact", "--jobs", 2, "--nodes", 2, "--out", tmp_path),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert bench.stderr is not None
        folder = Path(bench.stderr.readline().split()[-1])
        wait_until(lambda: processes_with(f"SLURM_CONF={folder}/slurm.conf"))
        bench.send_signal(signal.SIGTERM)
        assert bench.wait(120) != 0
    finally:
        bench.kill()
    wait_until(lambda: not processes_with(f"SLURM_CONF={folder}/slurm.conf"))  # in a moment
    assert not folder.exists()
