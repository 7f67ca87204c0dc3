"""How slurmctld is configured, and what its schedulers did last, as far as it concerns trainers.

Every reading here is a request of its own.
"""

from __future__ import annotations

import re

from bftrainer_slurm.model import BackfillPass, Configuration
from bftrainer_slurm.slurm.directives import minutes_of
from bftrainer_slurm.slurm.gateway import GatewayError, SlurmUnavailableError
from bftrainer_slurm.slurm.nodelists import expand
from bftrainer_slurm.slurm.run import SlurmRunner

_BACKFILL_S = 30.0  # Slurm's own bf_interval
_PASS = re.compile(r"^\s*Last cycle when: .*\((\d+)\)$", re.MULTILINE)
_ACTIVE = "in the middle of backfilling"


def configuration(runner: SlurmRunner, partition: str) -> Configuration:
    """Return what slurm.conf says.

    Raises:
        GatewayError: Slurm did not answer, not as it should, or knows no such partition.
    """
    values = _values(runner)
    partitions = _partitions(runner)
    if partition not in partitions:
        raise GatewayError(f"scontrol show partition: no partition {partition}")
    return Configuration(
        int(values["MaxJobCount"]),
        minutes_of(partitions[partition]["MaxTime"]),
        backfill_s(values),
        _behind(partitions, partition, by_tier="partition_prio" in values.get("PreemptType", "")),
        jobs_private=not {"jobs", "all"}.isdisjoint(values.get("PrivateData", "").split(",")),
    )


def max_job_count(runner: SlurmRunner) -> int:
    """Return how many jobs slurmctld holds at most; each task of an array is one.

    Raises:
        GatewayError: Slurm did not answer, or not as it should.
    """
    return int(_values(runner)["MaxJobCount"])


def backfill_s(values: dict[str, str]) -> float | None:
    """Return the time between two backfill passes, None where there are none.

    ``values`` are the lines of ``scontrol show config``; see ``bf_interval`` in slurm.conf(5).
    """
    if values.get("SchedulerType") != "sched/backfill":
        return None
    match = re.search(r"(?:^|,)bf_interval=(-?\d+)", values.get("SchedulerParameters", ""))
    interval_s = _BACKFILL_S if match is None else float(match[1])
    return interval_s if interval_s > 0 else None


def last_pass(runner: SlurmRunner) -> BackfillPass | None:
    """Return the last pass of the backfill scheduler, None where there was none or sdiag is barred.

    Slurm does not count a pass with nothing in the queue.

    Raises:
        SlurmUnavailableError: slurmctld does not answer.
    """
    try:
        said = runner.read("sdiag")
    except SlurmUnavailableError:
        raise
    except GatewayError:
        return None
    match = _PASS.search(said)
    return None if match is None else BackfillPass(float(match[1]), _ACTIVE in said)


def _values(runner: SlurmRunner) -> dict[str, str]:
    said = runner.read("scontrol", "show", "config")
    values = dict(re.findall(r"^(\w+)\s*= (.*?)\s*$", said, re.MULTILINE))
    if not values.get("MaxJobCount", "").isdigit():
        raise GatewayError("scontrol show config: no MaxJobCount in it")
    return values


def _partitions(runner: SlurmRunner) -> dict[str, dict[str, str]]:
    """Return the settings of all partitions, by name. Only admins write them."""
    said = runner.read("scontrol", "--all", "--oneliner", "show", "partition")
    read = (dict(re.findall(r"(\w+)=(\S+)", line)) for line in said.splitlines())
    return {one["PartitionName"]: one for one in read if {"PartitionName", "MaxTime"} <= one.keys()}


def _behind(
    partitions: dict[str, dict[str, str]], trainers: str, *, by_tier: bool
) -> tuple[str, ...]:
    """Return the partitions on trainers' nodes whose jobs trainers come before, or wait beside.

    Slurm goes through its queue by tier, and ``by_tier`` preempts only what is in a lower one.
    """

    def tier(name: str) -> int:
        return int(partitions[name].get("PriorityTier", "1"))

    nodes = {name: set(expand(one.get("Nodes", ""))) for name, one in partitions.items()}
    highest = tier(trainers) if by_tier else tier(trainers) - 1
    return tuple(
        name
        for name in sorted(partitions)
        if name != trainers and tier(name) <= highest and nodes[name] & nodes[trainers]
    )
