"""What is changed in a process of an element that has just imported torch, and when.

A task becomes its node's torchrun as late as possible, when it is certain that it trains: at its
first ``init_process_group``, or when Lightning looks for its peers. What stands before that in the
script runs twice at the task's first start. A process that somebody else has started for one node
is left as it is, and told so.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, NoReturn

from bftrainer_slurm.elastic import resuming
from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.elastic.rendezvous.command_line import (
    STARTED_BY,
    is_launcher,
    is_llama_factory,
    is_ours,
)
from bftrainer_slurm.elastic.rendezvous.only_launcher import trains_beside
from bftrainer_slurm.elastic.tasks import apart, lightning, worker
from bftrainer_slurm.elastic.tasks.command import (
    deepspeeds_arguments,
    torchrun_for,
    torchrun_for_deepspeed,
    without_local_rank,
)
from bftrainer_slurm.elastic.tasks.seats import VARIABLE, seat, use_all_processors, wait_for

_NO_TORCHRUN = ("USE_RAY", "USE_KT")  # LLaMA Factory's
_STARTED_BY_ACCELERATE = "ACCELERATE_DYNAMO_BACKEND"  # which its launcher always sets


def install(environment: MutableMapping[str, str], command: Sequence[str]) -> None:
    """Have this process meet the trainer's other nodes, as a worker or as a task of srun."""
    if not is_ours(environment):
        if "TORCHELASTIC_RUN_ID" in environment:
            resuming.install(environment)
        return
    if "TORCHELASTIC_RUN_ID" in environment:
        worker.prepare(environment)
        return
    if (arguments := deepspeeds_arguments(command)) is not None:
        found = torchrun_for_deepspeed(arguments, sys.executable, environment)
        if found is not None:
            _become(found[0], environment, "deepspeed", tells_rank=found[1])
    if is_launcher(command):
        apart.watch(environment)  # torchtune's trains itself where one device is meant
        if is_llama_factory(command):
            _let_it_launch(environment)
        return
    if "--multiprocessing-fork" in command:
        worker.before_group(lambda given: _say_who_spawned(environment, given))
        return
    apart.watch(environment)
    others = seat(environment).of
    plain = without_local_rank(command, environment)
    if torchrun_for(command, sys.executable, others) is None:
        return
    as_it_was = dict(environment)  # the script may change it before it trains
    process = os.getpid()
    by_srun = "srun python" if "SLURM_STEP_ID" in environment else "python"
    own = by_srun if plain is None else "deepspeed"

    def begin(processes: int, launcher: str) -> None:
        torchrun = torchrun_for(plain or command, sys.executable, max(others, processes))
        if torchrun is not None and not trains_beside(environment):
            _become(torchrun, as_it_was, launcher, tells_rank=plain is not None)

    def begin_with_group(given: Mapping[str, Any]) -> None:
        if os.getpid() != process:
            _say_who_spawned(environment, given)
        elif (starts := apart.starter(process)) is not None:
            apart.tell(environment, starts)
        else:
            begin(1, own)

    def begin_with_lightning(arguments: Mapping[str, Any]) -> None:
        processes = lightning.processes(arguments)
        if os.getpid() == process and ("SLURM_STEP_ID" in environment or processes > 1):
            begin(processes, "lightning")

    if _STARTED_BY_ACCELERATE in environment:  # alone, it would never look for others
        begin(1, "accelerate")
    worker.before_group(begin_with_group)
    lightning.before_connectors(begin_with_lightning)


def _let_it_launch(environment: MutableMapping[str, str]) -> None:
    """Have LLaMA Factory start torchrun for one GPU too; else it trains itself (0.9.5)."""
    gpus = environment.get("SLURM_GPUS_ON_NODE", "")
    if gpus.isdecimal() and int(gpus) > 0 and environment.keys().isdisjoint(_NO_TORCHRUN):
        environment.setdefault("FORCE_TORCHRUN", "1")


def _say_who_spawned(environment: Mapping[str, str], given: Mapping[str, Any]) -> None:
    """Tell of a group of processes that the script itself has started on this node."""
    rank = given.get("rank", -1)
    if (rank if rank >= 0 else int(environment.get("RANK", "0"))) == 0:
        apart.tell(environment, "the script itself (torch.multiprocessing)")


def _become(
    torchrun: Sequence[str],
    environment: Mapping[str, str],
    launcher: str,
    tells_rank: bool = False,
) -> NoReturn:
    """Replace this process by its node's torchrun; or by one that waits for it, in other seats."""
    here = seat(environment)
    if here.number != 0:
        wait_for(here.first, environment)
    if here.of > 1:
        use_all_processors(environment)
    sys.stdout.flush()
    node = environment.get("SLURMD_NODENAME", "this node")
    say(f"{node} starts the script again under torchrun, to meet the trainer's others")
    told = {VARIABLE: worker.TELL_RANK if tells_rank else "1", STARTED_BY: launcher}
    os.execve(torchrun[0], list(torchrun), {**environment, **told})
