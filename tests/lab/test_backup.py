"""A cluster whose slurmctld has a backup: two control hosts, each with all that a host has."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.labcluster import namespaces
from scripts.labcluster.cluster import CONTROL_HOSTS, LabError
from scripts.labcluster.lab import Lab, started_lab
from scripts.labcluster.processes import child_of, end, launch
from scripts.labcluster.waiting import wait_until

FIRST, SECOND = CONTROL_HOSTS
pytestmark = [pytest.mark.slurm, pytest.mark.once]
as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root: hosts have networks")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with started_lab(nodes=1, networks=True, backup=True) as running:
        yield running


def is_up(lab: Lab, host: str) -> bool:
    return f"at {host} is UP" in lab.run("scontrol", "ping", check=False).stdout


@as_root
def test_each_host_has_its_own_name_and_address(lab: Lab) -> None:
    for host in CONTROL_HOSTS:
        first = lab.cluster.host(host).pid
        asked = namespaces.within(first, None, ("sh", "-c", "hostname; hostname -I"))
        told = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split()
        assert told == [host, str(lab.cluster.address_of(host))]


@as_root
def test_the_backup_takes_over_from_a_host_without_power_and_gives_back(lab: Lab) -> None:
    assert is_up(lab, FIRST)
    assert is_up(lab, SECOND)
    job = lab.sbatch("-N1", "-o", "/dev/null", script="#!/bin/sh\nsleep 600\n")
    wait_until(lambda: lab.squeue(job, "%T") == ["RUNNING"])
    # 22.05.8 does not save at once that backfill has started a job, but with the next change.
    since_s, saved = time.time(), lab.dir / "state" / "job_state"
    lab.run("scontrol", "update", f"JobId={job}", "Comment=saved", user="root")
    wait_until(lambda: saved.exists() and saved.stat().st_mtime > since_s)
    lab.cluster.kill_host(FIRST)
    wait_until(lambda: lab.squeue(job, "%T") == ["RUNNING"])
    assert not is_up(lab, FIRST)
    lab.cluster.add_host(FIRST)
    lab.cluster.start_slurmctld(on=FIRST)
    wait_until(lambda: is_up(lab, FIRST) and is_up(lab, SECOND))
    assert lab.squeue(job, "%T") == ["RUNNING"]


@as_root
def test_what_ends_on_a_control_host_is_started_again(lab: Lab) -> None:
    service = lab.cluster.daemons[f"slurmctld-{SECOND}"]
    first = child_of(service, 60)
    os.kill(first.pid, signal.SIGKILL)

    def again() -> bool:
        name = Path(f"/proc/{child_of(service, 60).pid}/comm")
        return not first.alive and name.read_text() == "slurmctld\n"

    wait_until(again)


def test_what_is_kept_up_ends_with_what_keeps_it_and_all_it_has_started(tmp_path: Path) -> None:
    command = ("sh", "-c", "sleep 1000 & wait")
    service = launch(namespaces.kept_up(command), tmp_path / "log")
    kept = child_of(service, 60)
    started = child_of(kept, 60)
    assert len({service, kept, started}) == 3
    assert end([service])  # without SIGKILL
    assert not kept.alive
    wait_until(lambda: not started.alive)


def test_two_hosts_without_networks_are_refused() -> None:
    with pytest.raises(LabError, match="--networks"), started_lab(nodes=1, backup=True):
        pass
