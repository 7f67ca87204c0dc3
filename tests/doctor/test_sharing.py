"""What shared nodes need, where a site lets trainers have parts of nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer_slurm.cli.doctor import table
from bftrainer_slurm.doctor.finding import Level
from tests.doctor.made import LINE, of, site

SHARES = f"{LINE} share=yes"
GOOD = {
    "GresTypes": "gpu",
    "SelectTypeParameters": "CR_CORE_MEMORY",
    "DefMemPerCPU": "4000",
    "TaskPlugin": "task/cgroup,task/affinity",
    "ConstrainDevices": "yes",
    "ConstrainCores": "yes",
    "ConstrainRAMSpace": "yes",
}


def test_a_site_of_whole_nodes_is_asked_for_nothing() -> None:
    assert not any(one.check.startswith("share") for one in of(site(), *Level))


def test_a_site_that_keeps_jobs_apart_is_right() -> None:
    found = [one for one in of(site(SHARES, **GOOD), *Level) if one.check.startswith("share")]
    assert [one.level for one in found] == [Level.OK] * 6


def test_memory_may_come_with_gpus_alone() -> None:
    per_gpu = GOOD | {"DefMemPerCPU": "0", "JobDefaults": "DefCpuPerGPU=2,DefMemPerGPU=1000"}
    found = [one for one in of(site(SHARES, **per_gpu), *Level) if one.check.startswith("share")]
    assert [one.level for one in found] == [Level.OK] * 6


@pytest.mark.parametrize("said", ["DefMemPerNode=8000", "JobDefaults=DefMemPerGPU=1000"])
def test_the_trainers_partition_may_have_a_default_memory_of_its_own(said: str) -> None:
    plain = GOOD | {"DefMemPerCPU": "UNLIMITED"}
    found = of(site(SHARES, f"bftrainer {said}", **plain), *Level)
    assert [one.level for one in found if "memory" in one.check] == [Level.OK] * 2
    elsewhere = of(site(SHARES, f"main {said}", **plain), Level.CHANGE)
    assert [one.check for one in elsewhere] == ["share: default memory"]


def test_what_is_found_stands_apart_from_the_name_of_the_check() -> None:
    lines = list(table(of(site(SHARES, **GOOD), *Level)))
    said = [line for line in lines if "share:" in line]
    assert len(said) == 6
    assert all("  " in line.partition("share:")[2] for line in said)


@pytest.mark.parametrize(
    ("values", "check", "said"),
    [
        ({"SelectTypeParameters": "CR_CPU"}, "memory counted", "CR_Core_Memory"),
        (
            {"SelectTypeParameters": "CR_CORE,CR_ONE_TASK_PER_CORE"},
            *("memory counted", "SelectTypeParameters=CR_Core_Memory,CR_ONE_TASK_PER_CORE"),
        ),
        ({"SelectType": "select/linear"}, "memory counted", "SelectType=select/cons_tres"),
        ({"DefMemPerCPU": "UNLIMITED"}, "default memory", "DefMemPerGPU"),
        ({"DefMemPerCPU": "0"}, "default memory", "DefMemPerGPU"),
        (
            {"DefMemPerCPU": "0", "JobDefaults": "DefCpuPerGPU=2,DefMemPerGPU=0"},
            *("default memory", "DefMemPerGPU"),
        ),
        ({"TaskPlugin": "task/affinity"}, "confined", "TaskPlugin=task/affinity,task/cgroup"),
        ({"TaskPlugin": "task/none"}, "confined", "TaskPlugin=task/cgroup"),
        ({"ConstrainCores": "no"}, "confined", "ConstrainCores=yes"),
        ({"ConstrainDevices": "no"}, "confined", "ConstrainDevices=yes"),
        ({"ConstrainRAMSpace": "(null)"}, "confined", "ConstrainRAMSpace=yes"),
    ],
)
def test_what_is_missing_is_named_with_what_to_do(
    values: dict[str, str], check: str, said: str
) -> None:
    (found,) = (
        one
        for one in of(site(SHARES, **(GOOD | values)), Level.CHANGE)
        if one.check.startswith("share")
    )
    assert check in found.check
    assert said in " ".join((found.why, *(one.line for one in found.changes)))


def test_what_confines_jobs_is_one_finding_and_each_line_is_a_change() -> None:
    values = {"TaskPlugin": "task/none", "ConstrainCores": "no", "ConstrainDevices": "no"}
    (found,) = of(site(SHARES, **(GOOD | values)), Level.CHANGE)
    assert [(one.file, one.line) for one in found.changes] == [
        ("slurm.conf", "TaskPlugin=task/cgroup"),
        ("cgroup.conf", "ConstrainDevices=yes"),
        ("cgroup.conf", "ConstrainCores=yes"),
    ]


def test_an_exclusive_partition_shares_no_node() -> None:
    (found,) = of(site(SHARES, "bftrainer OverSubscribe=EXCLUSIVE", **GOOD), Level.CHANGE)
    assert found.changes[0].line == "PartitionName=bftrainer OverSubscribe=NO"


def test_plugin_and_controller_must_both_know_of_it() -> None:
    facts = site(LINE, **GOOD)
    only_ours = replace(facts, settings=replace(facts.settings, share=True))
    (found,) = of(only_ours, Level.CHANGE)
    assert found.changes[0].line == "/opt/lib/bftrainer.so share=yes"
    facts = site(SHARES, **GOOD)
    only_plugin = replace(facts, settings=replace(facts.settings, share=False))
    (found,) = of(only_plugin, Level.CHANGE)
    assert found.changes[0].line == "share = true"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"SelectTypeParameters": "CR_CORE_MEMORY,CR_LLN"}, "CR_LLN"),
        ({"SchedulerParameters": "bf_interval=30,pack_serial_at_end"}, "pack_serial_at_end"),
        ({"TopologyPlugin": "topology/tree"}, "topology/tree"),
    ],
)
def test_what_changes_slurms_choice_of_nodes_is_told(values: dict[str, str], said: str) -> None:
    every = of(site(SHARES, **(GOOD | values)), Level.CONSIDER)
    (found,) = (one for one in every if one.check.startswith("share"))
    assert found.found == said


@pytest.mark.parametrize("topology", ["topology/none", "topology/flat", "(null)"])
def test_a_site_without_a_topology_is_right(topology: str) -> None:
    found = of(site(SHARES, **GOOD, TopologyPlugin=topology), Level.CONSIDER)
    assert not any(one.check.startswith("share") for one in found)
