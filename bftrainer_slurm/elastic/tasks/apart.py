"""Trainings that no torchrun of ours can take over: each node trains by itself, and is told so.

A Ray actor, a process of MPI, a child of multiprocessing: whoever started it knows one node only.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from typing import Any

from bftrainer_slurm.elastic.log import say

# What programs that start processes of one node tell each of them.
_STARTERS = {
    "OMPI_COMM_WORLD_LOCAL_RANK": "mpirun",
    "MPI_LOCALRANKID": "mpirun",  # MPICH's and Intel's
    "HOROVOD_LOCAL_RANK": "horovodrun",
    "RAY_RAYLET_PID": "Ray",
}
_INSTEAD = "Write 'srun torchrun train.py', or ask for one node with -N1"


def starter(environment: Mapping[str, str]) -> str:
    """Return what has started this process, if that knows one node only; else an empty text."""
    if multiprocessing.parent_process() is not None:
        return "the script itself (torch.multiprocessing)"
    return next((name for variable, name in _STARTERS.items() if variable in environment), "")


def tell(environment: Mapping[str, str], group: Mapping[str, Any], why: str) -> None:
    """Say in the job's log that this node trains by itself, as its process of rank 0.

    ``group``: the arguments of its ``init_process_group``.
    """
    if environment.get("PET_NNODES") == "1:1":  # so it is meant
        return
    rank = environment.get("RANK", "0") if group["rank"] < 0 else str(group["rank"])
    if rank == "0" and environment.get("SLURM_LOCALID", "0") == "0":
        node = environment.get("SLURMD_NODENAME", "this node")
        say(f"{node} trains by itself, without the trainer's other nodes: {why}. {_INSTEAD}")
