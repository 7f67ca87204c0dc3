"""What is read from slurmctld's own description of itself."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bftrainer_slurm.model import Configuration
from bftrainer_slurm.slurm.configuration import configuration, preempts, suspend_times_s
from bftrainer_slurm.slurm.run import SlurmRunner

TOPOLOGY = """\
SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-5] Switches=s[1-2]
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1-3]
SwitchName=s2 Level=0 LinkSpeed=1 Nodes=n4
BlockName=b1 BlockIndex=0 Nodes=n[5-6] BlockSize=2
"""


class Says:
    """A slurmctld that is configured so; ``about`` are its further answers."""

    def __init__(self, settings: str = "", partition: str = "", **about: str) -> None:
        self.about = {"partition": f"PartitionName=bftrainer MaxTime=UNLIMITED {partition}\n"}
        self.about |= {"config": f"MaxJobCount             = 10000\n{settings}\n", "qos": ""}
        self.about |= {"topology": TOPOLOGY, **about}

    def read(self, *command: str, **_: Any) -> str:
        return next(text for what, text in self.about.items() if what in command)

    def told(self) -> Configuration:
        return configuration(cast(SlurmRunner, self), "bftrainer")


@pytest.mark.parametrize(
    ("private", "hidden"),
    [
        ("none", set()),
        ("accounts,users", set()),
        ("accounts,jobs", {"jobs"}),
        ("nodes,usage", {"nodes", "usage"}),
        ("all", {"jobs", "nodes", "usage"}),
    ],
)
def test_private_data_says_what_users_see_of_others(private: str, hidden: set[str]) -> None:
    assert Says(f"PrivateData             = {private}").told().private == hidden


@pytest.mark.parametrize(("said", "grace_s"), [("", 0), ("GraceTime=0", 0), ("GraceTime=20", 20)])
def test_the_grace_of_the_trainers_partition_is_known(said: str, grace_s: int) -> None:
    assert Says(partition=said).told().grace_s == grace_s


@pytest.mark.parametrize(
    ("settings", "partition", "of_qos", "exempt_s"),
    [
        ("", "QoS=N/A", "", 0),
        ("PreemptExemptTime       = -00:00:01", "QoS=N/A", "", 0),
        ("PreemptExemptTime       = 00:00:00", "", "", 0),
        ("PreemptExemptTime       = 00:10:00", "QoS=N/A", "", 600),
        ("PreemptExemptTime       = 00:10:00", "QoS=idle", "\n", 600),
        ("PreemptExemptTime       = 00:10:00", "QoS=idle", "00:00:00\n", 0),
        ("PreemptExemptTime       = 00:00:00", "QoS=idle", "1-00:00:00\n", 86_400),
    ],
)
def test_how_long_slurm_preempts_no_element_is_known_from_slurm_conf_and_the_partitions_qos(
    settings: str, partition: str, of_qos: str, exempt_s: float
) -> None:
    assert Says(settings, partition, qos=of_qos).told().exempt_s == exempt_s


def test_a_partition_that_cancels_what_it_preempts_is_known() -> None:
    modes = ("REQUEUE", "CANCEL")
    assert [Says(partition=f"PreemptMode={mode}").told().cancels for mode in modes] == [False, True]


@pytest.mark.parametrize(
    ("kind", "mode", "can"),
    [
        ("preempt/partition_prio", "REQUEUE", True),
        ("preempt/partition_prio", "GANG,REQUEUE", True),
        ("preempt/partition_prio", "OFF", False),
        ("preempt/partition_prio", "CANCEL", True),
        ("preempt/qos", "OFF", True),
        ("preempt/none", "REQUEUE", False),
    ],
)
def test_whether_others_take_nodes_back_from_the_partition_is_known(
    kind: str, mode: str, can: bool
) -> None:
    assert preempts({"PreemptType": kind}, {"PreemptMode": mode}) == can


PROGRAMS = {"SuspendProgram": "/sbin/off", "ResumeProgram": "/sbin/on", "SuspendTime": "300 sec"}


@pytest.mark.parametrize(
    ("values", "of_main", "shown", "times_s"),
    [
        ({"SuspendProgram": "(null)"}, "", {}, {}),
        ({}, "", {}, {"n1": 300, "n2": 300, "n3": 300}),
        ({"SuspendTime": "INFINITE"}, "", {}, {}),
        ({"SuspendTime": "INFINITE"}, "60", {}, {"n1": 60, "n2": 60}),
        ({}, "GLOBAL", {}, {"n1": 300, "n2": 300, "n3": 300}),
        ({}, "INFINITE", {}, {"n3": 300}),
        ({"SuspendExcNodes": "n[2-3]"}, "", {}, {"n1": 300}),
        ({"SuspendExcNodes": "n[1-3]:2"}, "", {}, {"n1": 300, "n2": 300, "n3": 300}),
        ({"SuspendExcParts": "other,main"}, "", {}, {"n3": 300}),
        ({}, "", {"n1": "x SuspendTime=INFINITE", "n2": "x SuspendTime=9 y"}, {"n2": 9, "n3": 300}),
    ],
)  # fmt: skip
def test_when_slurm_switches_idle_nodes_off(
    values: dict[str, str], of_main: str, shown: dict[str, str], times_s: dict[str, float]
) -> None:
    main = {"Nodes": "n[1-2]", **({"SuspendTime": of_main} if of_main else {})}
    partitions = {"main": main, "bftrainer": {"Nodes": "n[1-3]"}}
    assert suspend_times_s(PROGRAMS | values, partitions, "bftrainer", shown) == times_s


def test_where_slurm_saves_power_it_tells_when_nodes_were_busy() -> None:
    settings = "\n".join(f"{key} = {value}" for key, value in PROGRAMS.items())
    nodes = "NodeName=n1 State=IDLE LastBusyTime=1700 SuspendTime=60 X\n"
    nodes += "NodeName=n2 State=IDLE+POWERED_DOWN LastBusyTime=Unknown\n"
    found = Says(settings, "Nodes=n[1-2]", node=nodes).told()
    assert found.suspend_s == {"n1": 60.0, "n2": 300.0}
    assert found.busy_s == {"n1": 1700.0}
    plain = Says(partition="Nodes=n[1-2]").told()
    assert plain.suspend_s == plain.busy_s == {}


@pytest.mark.parametrize("plugin", ["tree", "block", "flat", "3d_torus"])
def test_the_switch_or_block_of_each_node_is_known_where_there_is_one(plugin: str) -> None:
    found = Says(f"TopologyPlugin          = topology/{plugin}").told().switch_of
    known = {"n1": "s1", "n2": "s1", "n3": "s1", "n4": "s2", "n5": "b1", "n6": "b1"}
    assert found == (known if plugin in ("tree", "block") else {})
