"""What shared nodes need, where a site lets trainers have parts of nodes."""

from __future__ import annotations

import pytest

from bftrainer_slurm.cli.doctor import table
from bftrainer_slurm.doctor.finding import Level
from tests.doctor.made import of, shares, site


def test_a_site_of_whole_nodes_is_asked_for_nothing() -> None:
    assert not any(one.check.startswith("share") for one in of(site(), *Level))


def test_a_site_that_keeps_jobs_apart_is_right() -> None:
    found = [one for one in of(shares(), *Level) if one.check.startswith("share")]
    assert [one.level for one in found] == [Level.OK] * 6


def test_memory_may_come_with_gpus_alone() -> None:
    per_gpu = {"DefMemPerCPU": "0", "JobDefaults": "DefCpuPerGPU=2,DefMemPerGPU=1000"}
    found = [one for one in of(shares(**per_gpu), *Level) if one.check.startswith("share")]
    assert [one.level for one in found] == [Level.OK] * 6


@pytest.mark.parametrize("said", ["DefMemPerNode=8000", "JobDefaults=DefMemPerGPU=1000"])
def test_the_trainers_partition_may_have_a_default_memory_of_its_own(said: str) -> None:
    plain = {"DefMemPerCPU": "UNLIMITED"}
    found = of(shares(partition=f"bftrainer {said}", **plain), *Level)
    assert [one.level for one in found if "memory" in one.check] == [Level.OK] * 2
    elsewhere = of(shares(partition=f"main {said}", **plain), Level.CHANGE)
    assert [one.check for one in elsewhere] == ["share: default memory"]


def test_what_is_found_stands_apart_from_the_name_of_the_check() -> None:
    lines = list(table(of(shares(), *Level)))
    said = [line for line in lines if "share:" in line]
    assert len(said) == 6
    assert all("  " in line.partition("share:")[2] for line in said)


@pytest.mark.parametrize("topology", ["topology/none", "topology/flat", "(null)"])
def test_a_site_without_a_topology_is_right(topology: str) -> None:
    found = of(shares(TopologyPlugin=topology), Level.CONSIDER)
    assert not any(one.check.startswith("share") for one in found)
