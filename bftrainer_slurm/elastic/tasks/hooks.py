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
from bftrainer_slurm.elastic.around import around
from bftrainer_slurm.elastic.imported import when_imported
from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.elastic.rendezvous.command_line import STARTED_BY, is_ours
from bftrainer_slurm.elastic.rendezvous.only_launcher import HELD, hold, trains_beside
from bftrainer_slurm.elastic.tasks import apart, lightning, worker
from bftrainer_slurm.elastic.tasks.command import (
    torchrun_for,
    torchrun_for_deepspeed,
    without_local_rank,
)
from bftrainer_slurm.elastic.tasks.seats import VARIABLE, seats, use_all_processors

_DEEPSPEED = "deepspeed.launcher.runner"  # seen with 0.18
_RUN = "TORCHELASTIC_RUN_ID"  # which torchrun gives its workers
_NO_TORCHRUN = ("USE_RAY", "USE_KT")  # LLaMA Factory's
_STARTED_BY_ACCELERATE = "ACCELERATE_DYNAMO_BACKEND"  # which its launcher always sets


def install(environment: MutableMapping[str, str], command: Sequence[str]) -> None:
    """Have this process meet the trainer's other nodes, as a worker or as a task of srun."""
    if not is_ours(environment):
        if _RUN in environment:
            resuming.install(environment)
        return
    if _RUN in environment:
        worker.prepare(environment)
        return
    when_imported({_DEEPSPEED: lambda launcher: _take_its_place(launcher, environment)})
    _let_llama_factory_launch(environment)
    others = seats(environment)
    plain = without_local_rank(command, environment)
    as_it_was = dict(environment)  # the script may change it before it trains
    by_srun = "srun python" if "SLURM_STEP_ID" in environment else "python"
    own = by_srun if plain is None else "deepspeed"

    def begin(processes: int, launcher: str) -> None:
        torchrun = torchrun_for(plain or command, sys.executable, max(others, processes))
        if torchrun is not None and not trains_beside(environment):
            _become(torchrun, as_it_was, launcher, tells_rank=plain is not None)

    def begin_with_group(given: Mapping[str, Any]) -> None:
        if _RUN in environment:  # this process was a torchrun, and has forked a worker
            return
        if starts := apart.starter(environment):
            apart.tell(environment, given, f"{starts} starts its processes")
        elif torchrun_for(command, sys.executable, 1) is None:
            apart.tell(environment, given, "its code is in no file, so it cannot begin again")
        else:
            begin(1, own)

    def begin_with_lightning(arguments: Mapping[str, Any]) -> None:
        if _RUN in environment or apart.starter(environment):
            return
        processes = lightning.processes(arguments)
        if "SLURM_STEP_ID" in environment or processes > 1:
            begin(processes, "lightning")

    if _STARTED_BY_ACCELERATE in environment:  # alone, it would never look for others
        begin(1, "accelerate")
    worker.before_group(begin_with_group)
    lightning.before_connectors(begin_with_lightning)


def _take_its_place(launcher: Any, environment: Mapping[str, str]) -> None:
    """Become the torchrun that does what DeepSpeed's launcher would do on this node."""

    def launch(main: object, arguments: Sequence[str] | None = None) -> None:
        options = launcher.parse_args(arguments)
        processes = environment.get("PET_NPROC_PER_NODE", "1")
        torchrun = torchrun_for_deepspeed(options, sys.executable, processes)
        _become(torchrun, environment, "deepspeed", tells_rank=not options.no_local_rank)

    around(launcher, "main", launch)


def _let_llama_factory_launch(environment: MutableMapping[str, str]) -> None:
    """Have LLaMA Factory start torchrun for one GPU too; else it trains itself (0.9.5)."""
    gpus = environment.get("SLURM_GPUS_ON_NODE", "")
    if gpus.isdecimal() and int(gpus) > 0 and environment.keys().isdisjoint(_NO_TORCHRUN):
        environment.setdefault("FORCE_TORCHRUN", "1")


def _become(
    torchrun: Sequence[str],
    environment: Mapping[str, str],
    launcher: str,
    tells_rank: bool = False,
) -> NoReturn:
    """Replace this process by its node's torchrun; or by one that waits for another's."""
    told = {VARIABLE: worker.TELL_RANK if tells_rank else "1", STARTED_BY: launcher}
    if (held := hold(environment)) is not None:  # else torchrun says what is wrong
        held.set_inheritable(True)
        told[HELD] = str(held.fileno())
    if seats(environment) > 1:
        use_all_processors(environment)
    sys.stdout.flush()
    node = environment.get("SLURMD_NODENAME", "this node")
    say(f"{node} starts the script again under torchrun, to meet the trainer's others")
    os.execve(torchrun[0], list(torchrun), {**environment, **told})
