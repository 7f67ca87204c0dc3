"""What slurm.conf says that concerns trainers, as slurmctld tells it. A request each."""

from __future__ import annotations

import re

from bftrainer_slurm.slurm.directives import minutes_of
from bftrainer_slurm.slurm.gateway import GatewayError
from bftrainer_slurm.slurm.run import SlurmRunner


def max_job_count(runner: SlurmRunner) -> int:
    """Return how many jobs slurmctld holds at most; each task of an array is one.

    Raises:
        GatewayError: Slurm did not answer, or not as it should.
    """
    said = runner.read("scontrol", "show", "config")
    match = re.search(r"^MaxJobCount\s*=\s*(\d+)", said, re.MULTILINE)
    if match is None:
        raise GatewayError("scontrol show config: no MaxJobCount in it")
    return int(match[1])


def partition_minutes(runner: SlurmRunner, partition: str) -> int | None:
    """Return the longest time limit of a partition, None where there is none.

    Raises:
        GatewayError: Slurm did not answer, or knows no such partition.
    """
    said = runner.read("scontrol", "--oneliner", "show", "partition", partition)
    match = re.search(r" MaxTime=(\S+)", said)
    if match is None:
        raise GatewayError(f"scontrol show partition {partition}: no MaxTime in it")
    return minutes_of(match[1])
