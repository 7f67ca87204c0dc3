"""scripts/lab, as people call it, on this machine's Slurm."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.labcluster import OptionsError, cluster, namespaces
from scripts.labcluster.configuration import Options
from scripts.labcluster.lab import Lab, started_lab
from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.newest]
as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root: it acts for several users")


@pytest.fixture(scope="module")
def small() -> Iterator[Lab]:
    with started_lab(nodes=2) as running:
        yield running


def lab(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [REPO / "scripts" / "lab", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@as_root
def test_nodes_have_names_of_their_own_by_which_others_reach_them(small: Lab) -> None:
    own = small.run("srun", "-N2", "python3", "-c", "import socket; print(socket.getfqdn())")
    assert sorted(own.stdout.split()) == ["n1", "n2"]
    known = small.run("srun", "-w", "n1", "getent", "hosts", "n2").stdout
    node = small.run("scontrol", "-o", "show", "node", "n2").stdout
    assert f"NodeAddr={known.split()[0]} " in node


def test_jobs_share_the_gpus_of_a_node_as_in_the_records_of_this_slurm() -> None:
    with started_lab(nodes=4, gpus=8) as shared:
        for words in (
            ("-w", "n1", "--gpus-per-node=3"),
            ("-w", "n2", "--gpus-per-node=a100:1", "--cpus-per-task=3", "--mem=2500"),
            ("-w", "n2", "-p", "bftrainer", "--gres=gpu:2"),
            ("-w", "n3", "-n5"),
        ):
            job = shared.sbatch("-N1", "-o", "/dev/null", *words, script="#!/bin/sh\nsleep 600")
            wait_until(lambda job=job: shared.squeue(job, "%t") == ["R"])  # type: ignore[misc]
        version = shared.run("slurmctld", "-V").stdout.split()[1]
        record = REPO / "tests" / "slurm" / "data" / "gpus" / f"nodes-{version}.txt"
        if not record.exists():
            pytest.skip(f"no record of Slurm {version}")
        told = shared.run("scontrol", "show", "node", "-d").stdout
        # What nodes have, and what of it jobs have.
        given = r"(?:NodeName|\bGres|GresUsed|CPUAlloc|AllocMem|CfgTRES)=\S+"
        assert re.findall(given, told) == re.findall(given, record.read_text())


def test_down_leaves_nothing_and_can_be_said_twice() -> None:
    cgroups = namespaces.hierarchy()
    with started_lab(nodes=1) as running:
        job = running.sbatch("-o", "/dev/null", script="#!/bin/sh\nsleep 600 & setsid sleep 600")
        wait_until(lambda: running.squeue(job, "%t") == ["R"])
        own = None if cgroups is None else cgroups.of_node(running.dir, "n1")[0]
        assert own is None or own.is_dir()
        for _ in range(2):
            assert lab("down", "--dir", running.dir).returncode == 0
        assert not running.dir.exists()
        assert not subprocess.run(["pgrep", "-f", running.dir], capture_output=True).stdout
        assert own is None or not own.parent.exists()


@as_root
@pytest.mark.once
def test_an_ordinary_user_has_one_of_their_own(small: Lab) -> None:
    home, folder = small.home("bob"), small.home("bob") / "own"
    for name in ("scripts", "bftrainer_slurm"):  # the clone may be closed to bob
        shutil.copytree(REPO / name, home / name)
    command = ("/usr/bin/env", "python3", home / "scripts" / "lab")
    small.run(*command, "up", "--nodes", "1", "--dir", folder, user="bob")
    try:
        own = {"SLURM_CONF": f"{folder}/slurm.conf"}
        assert small.run("srun", "id", "-un", user="bob", env=own).stdout == "bob\n"
    finally:
        small.run(*command, "down", "--dir", folder, user="bob")


@pytest.mark.parametrize(
    "arguments",
    [["up"], ["up", "--nodes", "0"], ["up", "--nodes", "2", "--conf", "x"], ["nonsense"], []],
)
@pytest.mark.once
def test_a_bad_call_is_refused(arguments: list[str]) -> None:
    assert lab(*arguments).returncode == 2


@pytest.mark.once
def test_what_a_cluster_cannot_do_is_refused_in_a_line(
    small: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = lab("node", "n2", "cut", "--dir", small.dir)  # it has no network of its own
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "lab up --networks" in refused.stderr
    refused = lab("up", "--nodes", "1", "--confine", "--dir", tmp_path)  # it has no GPUs
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    with pytest.raises(OptionsError, match="needs root"):
        cluster.up(tmp_path, Options(nodes=1, gpus=2, confine=True))
    assert not [*tmp_path.iterdir()]
