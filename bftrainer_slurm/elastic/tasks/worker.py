"""What a torchrun's worker finds where srun started its script: srun's variables, and one group.

Scripts read their rank from SLURM_PROCID, and name a head node that they found in SLURM_NODELIST.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, MutableMapping
from typing import Any

from bftrainer_slurm.elastic import beginning, resuming
from bftrainer_slurm.elastic.around import before
from bftrainer_slurm.elastic.memory import of_agent
from bftrainer_slurm.elastic.tasks import lightning
from bftrainer_slurm.elastic.tasks.command import LOCAL_RANK
from bftrainer_slurm.elastic.tasks.seats import VARIABLE

TELL_RANK = "rank"  # the value of VARIABLE if each script gets its rank on the node as an argument
_MEETING = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
_LISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_STEP_NODELIST")


def prepare(environment: MutableMapping[str, str]) -> None:
    """Set up a worker before its script runs."""
    lightning.fit_nodes(environment)
    resuming.install(environment)
    beginning.watch()
    if VARIABLE not in environment:
        return
    if environment[VARIABLE] == TELL_RANK:
        environment[VARIABLE] = "1"  # not for what the script starts
        sys.argv.insert(1, f"{LOCAL_RANK}={environment['LOCAL_RANK']}")
    environment.update(_as_srun(environment))
    _meet_by_environment(environment)


def before_group(do: Callable[[MutableMapping[str, Any]], object]) -> None:
    """Call ``do`` before each of the script's ``init_process_group``, with its arguments.

    One with a store of its own is left alone.
    """
    import torch.distributed as dist

    before(
        *(dist, "init_process_group"),
        lambda arguments: arguments["store"] is None and do(arguments),
    )
    dist.distributed_c10d.init_process_group = dist.init_process_group


def _as_srun(environment: MutableMapping[str, str]) -> dict[str, str]:
    """Return srun's variables, srun(1), for a generation's nodes as those of one job."""
    world, local_world = environment["WORLD_SIZE"], environment["LOCAL_WORLD_SIZE"]
    nodes = str(int(world) // int(local_world))
    per_node = local_world if nodes == "1" else f"{local_world}(x{nodes})"
    variables = {
        "SLURM_PROCID": environment["RANK"],
        "SLURM_LOCALID": environment["LOCAL_RANK"],
        "SLURM_NODEID": environment["GROUP_RANK"],
        **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS"), world),
        **dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_STEP_NUM_NODES"), nodes),
        **dict.fromkeys(("SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"), per_node),
    }
    if "SLURM_NTASKS_PER_NODE" in environment:
        variables["SLURM_NTASKS_PER_NODE"] = local_world
    memory = of_agent(environment)
    if memory is not None and memory.nodes:
        variables.update(dict.fromkeys(_LISTS, memory.nodes))
    return variables


def _meet_by_environment(environment: MutableMapping[str, str]) -> None:
    """Have ``init_process_group`` meet at torchrun's place, whatever the script has found out."""
    meeting = {name: environment[name] for name in _MEETING}

    def meet_here(arguments: MutableMapping[str, Any]) -> None:
        environment.update(meeting)
        for name in ("init_method", "rank", "world_size"):
            arguments.pop(name, None)

    before_group(meet_here)
