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
LAB = str(REPO / "scripts" / "lab")
as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root: it acts for several users")


@pytest.fixture(scope="module")
def small() -> Iterator[Lab]:
    with started_lab(nodes=2) as running:
        yield running


def lab(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LAB, *arguments], capture_output=True, text=True, **options)  # type: ignore[call-overload, no-any-return]


@as_root
def test_nodes_have_names_of_their_own_by_which_others_reach_them(small: Lab) -> None:
    own = small.run("srun", "-N2", "python3", "-c", "import socket; print(socket.getfqdn())")
    assert sorted(own.stdout.split()) == ["n1", "n2"]
    known = small.run("srun", "-w", "n1", "getent", "hosts", "n2").stdout
    node = small.run("scontrol", "-o", "show", "node", "n2").stdout
    assert f"NodeAddr={known.split()[0]} " in node


@as_root
def test_down_leaves_no_cgroup() -> None:
    cgroups = namespaces.hierarchy()
    if cgroups is None:
        pytest.skip("this host has no cgroups that can be used")
    with started_lab(nodes=1) as running:
        (own,) = cgroups.of_node(running.dir, "n1")
        assert own.is_dir()
    assert not own.parent.exists()


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
        assert _given(told) == _given(record.read_text())


def _given(nodes: str) -> list[str]:
    """Return what nodes have, and what of it jobs have."""
    return re.findall(r"(?:NodeName|\bGres|GresUsed|CPUAlloc|AllocMem|CfgTRES)=\S+", nodes)


@pytest.mark.once
def test_a_node_without_a_network_of_its_own_is_not_cut_off(small: Lab) -> None:
    refused = lab("node", "n2", "cut", "--dir", str(small.dir))
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "lab up --networks" in refused.stderr


@pytest.mark.once
def test_down_leaves_nothing_and_can_be_said_twice(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with started_lab(nodes=1) as running:
        job = running.sbatch("-o", "/dev/null", script="#!/bin/sh\nsleep 600 & setsid sleep 600")
        wait_until(lambda: running.squeue(job, "%t") == ["R"])
        where, folder = ("--dir", str(running.dir)), running.dir
        assert lab("down", *where).returncode == 0
        assert not folder.exists()
        left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if _names(path, folder)]
        assert left == []
        assert lab("down", *where).returncode == 0


def _names(cmdline: Path, folder: Path) -> bool:
    try:
        return str(folder).encode() in cmdline.read_bytes()
    except OSError:
        return False


@as_root
@pytest.mark.once
def test_an_ordinary_user_has_one_of_their_own(small: Lab) -> None:
    folder = small.home("bob") / "own"
    environment = {"PATH": os.environ["PATH"]}
    options = {"env": environment, "user": "bob", "group": "bob", "extra_groups": [], "cwd": "/"}
    script = Path(LAB)
    if subprocess.run(["test", "-r", script], user="bob", cwd="/").returncode != 0:
        # The clone is in a folder that is closed to bob: give him a copy of the script.
        shutil.copytree(REPO / "scripts", small.home("bob") / "scripts")
        script = small.home("bob") / "scripts" / "lab"
    started = subprocess.run(
        ["/usr/bin/env", "python3", script, "up", "--nodes", "1", "--dir", folder],
        capture_output=True,
        text=True,
        **options,
    )
    assert started.returncode == 0, started.stderr
    try:
        ran = subprocess.run(
            ["srun", "id", "-un"],
            capture_output=True,
            text=True,
            **(options | {"env": environment | {"SLURM_CONF": f"{folder}/slurm.conf"}}),
        )
        assert ran.stdout == "bob\n"
    finally:
        subprocess.run(["/usr/bin/env", "python3", script, "down", "--dir", folder], **options)


@pytest.mark.parametrize(
    "arguments",
    [["up"], ["up", "--nodes", "0"], ["up", "--nodes", "2", "--conf", "x"], ["nonsense"], []],
)
@pytest.mark.once
def test_a_bad_call_is_refused(arguments: list[str]) -> None:
    assert lab(*arguments).returncode == 2


@pytest.mark.once
def test_gpus_are_confined_for_root_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = lab("up", "--nodes", "1", "--confine", "--dir", str(tmp_path))
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    with pytest.raises(OptionsError, match="needs root"):
        cluster.up(tmp_path, Options(nodes=1, gpus=2, confine=True))
    assert not [*tmp_path.iterdir()]
