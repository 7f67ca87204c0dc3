"""The processes that srun, or another launcher, has started on one node: one of them trains there.

It starts the processes of all, on the processors of all, and the others wait for it: see
``rendezvous.only_launcher``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.elastic.processes import processes_with

if TYPE_CHECKING:
    from torch.distributed.launcher.api import LaunchConfig

VARIABLE = "BFTRAINER_TASKS"  # set where a task of srun has become a torchrun
_DEEPSPEEDS = "CROSS_SIZE"  # which its launcher gives to each of its processes


def seats(environment: Mapping[str, str]) -> int:
    """Return how many such processes there are: srun's, an element being one node, or DeepSpeed's.

    Where each of srun's tasks is a DeepSpeed, it is the number of processes of one.

    Raises:
        ValueError: a variable is not a number.
    """
    by_srun = int(environment.get("SLURM_STEP_NUM_TASKS") or 1)
    by_launcher = int(environment.get("LOCAL_SIZE") or 1)
    if "SLURM_LOCALID" not in environment or by_srun == 1 or _DEEPSPEEDS in environment:
        return by_launcher if "LOCAL_RANK" in environment else 1
    return by_srun


def is_neighbour(process: int, environment: Mapping[str, str]) -> bool:
    """Whether a process is another of them, or has been started by another."""
    own = _told(environment, "SLURM_LOCALID", "LOCAL_RANK")
    others = set(_of_step(environment)) - set(_of_step(environment, *own))
    return seats(environment) > 1 and process in others


def _of_step(environment: Mapping[str, str], *variables: str) -> Iterator[int]:
    """Yield this step's processes on this node that have been started with these variables."""
    return processes_with(*_told(environment, "SLURM_JOB_ID", "SLURM_STEP_ID"), *variables)


def _told(environment: Mapping[str, str], *names: str) -> list[str]:
    return [f"{name}={environment[name]}" for name in names if name in environment]


def use_all_processors(environment: Mapping[str, str]) -> None:
    """Let this process use the processors of all: srun gives each task its own."""
    allowed = set(os.sched_getaffinity(0))
    for process in _of_step(environment):
        with suppress(OSError):  # it has ended
            allowed |= os.sched_getaffinity(process)
    with suppress(OSError):
        os.sched_setaffinity(0, allowed)


def launch_for_all(config: LaunchConfig, environment: Mapping[str, str]) -> None:
    """Let this launcher start what all tasks of its srun on this node would.

    Where each names itself as a node (``--nnodes=$SLURM_NTASKS``), it starts the processes of all.
    Where they cannot all fit the node's GPUs, or just one is meant, it starts its own.
    """
    try:
        here = seats(environment)
        gpus = int(environment.get("SLURM_GPUS_ON_NODE") or 0)
    except ValueError:
        return
    if here == 1 or not environment.keys().isdisjoint((VARIABLE, "TORCHELASTIC_RUN_ID")):
        return
    each_is_a_node = config.min_nodes == config.max_nodes and config.max_nodes % here == 0
    of_all = here * config.nproc_per_node
    if each_is_a_node and not 0 < gpus < of_all:
        config.nproc_per_node = of_all
    use_all_processors(environment)
    say(
        f"{environment.get('SLURMD_NODENAME', 'this node')} has {here} launchers: one of them "
        f"starts its {config.nproc_per_node} processes, the others wait for it"
    )
