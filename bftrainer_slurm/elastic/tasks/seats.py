"""The processes that srun, or another launcher, has started on one node: one of them trains there.

It is the first one: it starts the processes of all, on the processors of all. The others wait.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import get_data
from typing import TYPE_CHECKING, NoReturn

from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.elastic.rendezvous.command_line import is_launcher
from bftrainer_slurm.elastic.tasks import waiting

if TYPE_CHECKING:
    from torch.distributed.launcher.api import LaunchConfig

VARIABLE = "BFTRAINER_TASKS"  # set where a task of srun has become a torchrun
_DEEPSPEEDS = "CROSS_SIZE"  # which its launcher gives to each of its processes
_LAUNCH_S = 60.0  # a first task that has started no launcher for so long does something else
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Seat:
    """A process's place among those that srun, or another launcher, has started on this node."""

    number: int = 0
    of: int = 1
    first: str = ""  # what the environment of the first of them has, with commas between


def seat(environment: Mapping[str, str]) -> Seat:
    """Return this process's seat: by srun's variables, an element being one node, or DeepSpeed's.

    Where each of srun's tasks is a DeepSpeed, it is the seat among the processes of the first one.

    Raises:
        ValueError: a variable is not a number.
    """
    by_srun = _seat(environment, "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS")
    by_launcher = _seat(environment, "LOCAL_RANK", "LOCAL_SIZE")
    if by_srun.of == 1:
        return by_launcher
    if by_srun.number or by_launcher.of == 1 or _DEEPSPEEDS not in environment:
        return by_srun
    return replace(by_launcher, first=f"{by_srun.first},{by_launcher.first}")


def _seat(environment: Mapping[str, str], number: str, size: str) -> Seat:
    of = int(environment.get(size) or 1)
    if of > 1 and number in environment:
        return Seat(int(environment[number]), of, f"{number}=0")
    return Seat()


def wait_for(whom: str | int, environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by one that waits for another, or for all that have ``whom``."""
    text = (get_data(__package__, "waiting.py") or b"").decode()  # we may be in a zip file
    command = [sys.executable, "-S", "-c", text, str(whom)]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, command, dict(environment))


def use_all_processors(environment: Mapping[str, str]) -> None:
    """Let the first task use the processors of all: srun gives each task its own."""
    allowed = set(os.sched_getaffinity(0))
    for process in waiting.processes(environment):
        with suppress(OSError):  # it has ended
            allowed |= os.sched_getaffinity(process)
    with suppress(OSError):
        os.sched_setaffinity(0, allowed)


def launch_once(config: LaunchConfig, environment: Mapping[str, str]) -> None:
    """Let one launcher of several start what all of them would: the first; the others wait.

    Where each names itself as a node (``--nnodes=$SLURM_NTASKS``), the first starts the processes
    of all. Where they cannot all fit the node's GPUs, or just one is meant, it starts its own.
    """
    try:
        here = seat(environment)
        gpus = int(environment.get("SLURM_GPUS_ON_NODE") or 0)
    except ValueError:
        return
    if here.of == 1 or not environment.keys().isdisjoint((VARIABLE, "TORCHELASTIC_RUN_ID")):
        return
    if here.number != 0:
        if (first := _first_launcher(here, environment)) is not None:
            wait_for(first, environment)
        return
    each_is_a_node = config.min_nodes == config.max_nodes and config.max_nodes % here.of == 0
    of_all = here.of * config.nproc_per_node
    if each_is_a_node and not 0 < gpus < of_all:
        config.nproc_per_node = of_all
    use_all_processors(environment)
    say(
        f"{environment.get('SLURMD_NODENAME', 'this node')} has {here.of} launchers: the first one "
        f"starts its {config.nproc_per_node} processes, the others wait for it"
    )


def _first_launcher(here: Seat, environment: Mapping[str, str]) -> int | str | None:
    """Return the launcher of the first task, or what says which this task is, if that has ended.

    None: it runs, and starts none.
    """
    until_s = time.monotonic() + _LAUNCH_S
    while True:
        found = list(waiting.processes(environment, *here.first.split(",")))
        if not found:
            return here.first
        for process in found:
            with suppress(OSError):
                command = Path(f"/proc/{process}/cmdline").read_text(errors="replace")
                if is_launcher(command.split("\0")):
                    return process
        if time.monotonic() > until_s:
            return None
        time.sleep(_LOOK_S)
