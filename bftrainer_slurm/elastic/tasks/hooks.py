"""What is changed in a process of an element that has just imported torch, and when.

A task becomes its node's torchrun as late as possible, when it is certain that it trains: at its
first ``init_process_group``, or when Lightning looks for its peers. What stands before that in the
script runs twice at the task's first start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import wraps
from inspect import signature
from pathlib import Path
from pkgutil import get_data
from typing import Any, NoReturn

from bftrainer_slurm.elastic.rendezvous.command_line import BACKEND, is_launcher
from bftrainer_slurm.elastic.tasks import lightning, worker
from bftrainer_slurm.elastic.tasks.command import (
    tasks_on_node,
    torchrun_for,
    torchrun_for_deepspeed,
)

_STARTED_BY_ACCELERATE = "ACCELERATE_DYNAMO_BACKEND"  # which its launcher always sets
# elastic.Trainer makes its groups itself, and helps Lightning and others to count one process.
_IN_PROCESS = tuple(f"bftrainer_slurm.elastic.inprocess.{name}" for name in ("training", "alone"))


def install(environment: MutableMapping[str, str], command: Sequence[str]) -> None:
    """Have this process meet the trainer's other nodes, as a worker or as a task of srun."""
    if environment.get("PET_RDZV_BACKEND") != BACKEND:
        return
    if "TORCHELASTIC_RUN_ID" in environment:
        worker.prepare(environment)
        return
    if Path(sys.argv[0]).name == "deepspeed":
        torchrun = torchrun_for_deepspeed(sys.argv[1:], sys.executable, environment)
        if torchrun is not None:
            _become(torchrun, environment)
    if is_launcher(command) or "--multiprocessing-fork" in command:
        return
    torchrun = torchrun_for(command, sys.executable, tasks_on_node(environment))
    if torchrun is None:
        return
    as_it_was = dict(environment)  # the script may change it before it trains
    if _STARTED_BY_ACCELERATE in environment:  # alone, it would never look for others
        _become(torchrun, as_it_was)

    def begin(*_: object) -> None:
        if not any(name in sys.modules for name in _IN_PROCESS):
            _become(torchrun, as_it_was)

    _at_first_group(begin)
    if "SLURM_STEP_ID" in environment:
        lightning.before_connectors(begin)


def _become(torchrun: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by its node's torchrun; or by one that waits for it, in other tasks."""
    sys.stdout.flush()
    sys.stderr.flush()
    if tasks_on_node(environment) > 1 and environment.get("SLURM_LOCALID", "0") != "0":
        waiting = (get_data(__package__, "waiting.py") or b"").decode()  # we may be in a zip file
        os.execve(sys.executable, [sys.executable, "-S", "-c", waiting], dict(environment))
    node = environment.get("SLURMD_NODENAME", "this node")
    print(
        f"bftrainer: {node} starts the script again under torchrun, to meet the trainer's others",
        file=sys.stderr,
        flush=True,
    )
    os.execve(torchrun[0], list(torchrun), {**environment, worker.VARIABLE: "1"})


def _at_first_group(begin: Callable[[], object]) -> None:
    """Call ``begin`` in place of the script's first ``init_process_group``."""
    import torch.distributed as dist

    init = dist.init_process_group
    arguments = signature(init)

    @wraps(init)
    def init_after(*given: Any, **named: Any) -> None:
        if arguments.bind(*given, **named).arguments.get("store") is None:
            begin()
        init(*given, **named)

    worker.replace(init_after)
