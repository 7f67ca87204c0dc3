"""What is read from slurmctld's own description of itself."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bftrainer_slurm.model import Configuration
from bftrainer_slurm.slurm.configuration import configuration, suspend_times_s
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


PRIORITY, MODE = "PreemptType = preempt/partition_prio", "PreemptMode="
BACKFILL = "SchedulerType = sched/backfill\nSchedulerParameters = "


@pytest.mark.parametrize(
    ("settings", "partition", "what", "told"),
    [
        ("PrivateData             = none", "", "private", set()),
        ("PrivateData             = accounts,users", "", "private", set()),
        ("PrivateData             = accounts,jobs", "", "private", {"jobs"}),
        ("PrivateData             = nodes,usage", "", "private", {"nodes", "usage"}),
        ("PrivateData             = all", "", "private", {"jobs", "nodes", "usage"}),
        ("", "", "grace_s", 0),
        ("", "GraceTime=0", "grace_s", 0),
        ("", "GraceTime=20", "grace_s", 20),
        ("", f"{MODE}REQUEUE", "cancels", False),
        ("", f"{MODE}CANCEL", "cancels", True),
        (f"{BACKFILL}bf_interval=5", "", "backfill_s", 5.0),
        (f"{BACKFILL}max_switch_wait=1", "", "backfill_s", 30.0),
        (f"{BACKFILL}bf_interval=-1", "", "backfill_s", None),
        ("SchedulerType = sched/builtin", "", "backfill_s", None),
        ("SelectTypeParameters = CR_CORE_MEMORY", "", "counts_memory", True),
        # Whether others take nodes back from the partition.
        (PRIORITY, f"{MODE}REQUEUE", "preempts", True),
        (PRIORITY, f"{MODE}GANG,REQUEUE", "preempts", True),
        (PRIORITY, f"{MODE}OFF", "preempts", False),
        (PRIORITY, f"{MODE}CANCEL", "preempts", True),
        ("PreemptType = preempt/qos", f"{MODE}OFF", "preempts", True),
        ("PreemptType = preempt/none", f"{MODE}REQUEUE", "preempts", False),
    ],
)
def test_what_a_setting_of_slurm_says(
    settings: str, partition: str, what: str, told: object
) -> None:
    assert getattr(Says(settings, partition).told(), what) == told


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
