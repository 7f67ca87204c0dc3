"""A site as it should be, by recorded texts of a real Slurm, and the same with changes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from bftrainer_slurm import __version__
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.doctor.checkup import checkup
from bftrainer_slurm.doctor.facts import Facts, HostFacts, Network, Plugin
from bftrainer_slurm.doctor.finding import Finding, Level
from bftrainer_slurm.doctor.plugstack import our_lines
from bftrainer_slurm.slurm.configuration import partitions_in, values_in

_DATA = Path(__file__).parent / "data"
CONFIG = (_DATA / "config-22.05.8.txt").read_text()
PARTITIONS = (_DATA / "partitions-22.05.8.txt").read_text()
PASS = (_DATA / "sdiag-22.05.8.txt").read_text()
KEEPER = "ctl.example.org:6740"
LINE = (
    f"optional /opt/lib/bftrainer.so keeper={KEEPER} python=/opt/python announce=192.0.2.1:6740"
    " max_grace=5"
)
# What the recorded cluster lacks of a good one.
GOOD_PARTITION = {"MaxNodes": "1"}
GOOD = {"SchedulerParameters": "bf_interval=30,bf_continue", "Epilog": "/etc/slurm/epilog"}


def site(line: str = LINE, partition: str = "", **values: str) -> Facts:
    """Return the facts of a good site; with these values of slurm.conf in place of its own.

    ``partition`` has settings of partitions: ``bftrainer State=DOWN``.
    """
    partitions = partitions_in(PARTITIONS)
    partitions["bftrainer"] |= GOOD_PARTITION
    for name, key, value in re.findall(r"(\w+) (\w+)=(\S+)", partition):
        partitions[name][key] = value
    lines = our_lines([line])
    return Facts(
        values_in(CONFIG) | GOOD | values,
        partitions,
        Settings(listen=KEEPER, share="share=yes" in line),
        Plugin(lines, loaded=True, file_there=True, package=__version__),
        Network({"ctl.example.org": ("192.0.2.1",)}, "", "", ""),
        HostFacts("slurm", None, 0.3, "", "", ("bftrainer-grow", "bftrainer-look")),
    )


PYXIS = "required /usr/lib/slurm/spank_pyxis.so"
QOS = {"idle": {"Preempt": "", "PreemptMode": "cluster"}, "normal": {"Preempt": "idle"}}
SHARES = f"{LINE} share=yes"
OF_SHARES = {
    "GresTypes": "gpu",
    "SelectTypeParameters": "CR_CORE_MEMORY",
    "DefMemPerCPU": "4000",
    "TaskPlugin": "task/cgroup,task/affinity",
    "ConstrainDevices": "yes",
    "ConstrainCores": "yes",
    "ConstrainRAMSpace": "yes",
}


def shares(line: str = SHARES, partition: str = "", **values: str) -> Facts:
    """Return the facts of a good site that lets trainers have parts of nodes, but for these."""
    return site(line, partition, **(OF_SHARES | values))


def of(facts: Facts, *levels: Level) -> list[Finding]:
    """Return the findings of these levels."""
    return [one for one in checkup(facts) if one.level in levels]


def but(facts: Facts, part: str, **changes: Any) -> Facts:
    """Return the facts with changes in one of their parts: host, network, plugin or settings."""
    return replace(facts, **{part: replace(getattr(facts, part), **changes)})
