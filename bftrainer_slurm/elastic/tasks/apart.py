"""Trainings that no torchrun of ours can take over: each node trains by itself, and is told so.

A Ray actor, a process of MPI, a child of multiprocessing: whoever started it knows one node only.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from functools import wraps
from pathlib import Path

from bftrainer_slurm.elastic.around import before
from bftrainer_slurm.elastic.log import say

SOON_S = 20.0  # a script that trains for so long without a group will not form one
_GENERATIONS = 32  # of parents to look at
_BYTES = 4096  # of a command line
_WORDS = 3  # of it: an interpreter may come first
# Programs that start processes of their own, by the names that users know them by.
_STARTERS = {
    **dict.fromkeys(("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"), "mpirun"),
    **dict.fromkeys(("orted", "prted", "hydra_pmi_proxy"), "mpirun"),
    **dict.fromkeys(("ray", "raylet"), "Ray"),
    "horovodrun": "horovodrun",
}
# Where there are several processes on a node, one of them speaks: what says which it is.
_LOCAL_RANKS = ("SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "LOCAL_RANK")
_INSTEAD = "Write 'srun torchrun train.py', or ask for one node with -N1"
_NO_GROUP = (
    "the script is one process, and forms no group (torch.distributed.init_process_group). Let it "
    "form one, or ask for one node with -N1"
)


def starter(process: int, proc: Path = Path("/proc")) -> str | None:
    """Return which program has started this process, if it is one that knows one node only."""
    for _ in range(_GENERATIONS):
        try:
            with (proc / str(process) / "cmdline").open("rb") as file:
                words = file.read(_BYTES).split(b"\0")[:_WORDS]
            stat = (proc / str(process) / "stat").read_text(errors="replace")
        except OSError:  # another user's, or it has ended
            return None
        for word in words:
            if name := _STARTERS.get(Path(word.decode(errors="replace")).name):
                return name
        process = int(stat.rpartition(")")[2].split()[1])
        if process <= 1:
            break
    return None


def tell(environment: Mapping[str, str], starts: str | None) -> None:
    """Say in the job's log that this node trains by itself: one line from each node."""
    if environment.get("PET_NNODES") == "1:1":  # so it is meant
        return
    if any(environment.get(name, "0") != "0" for name in _LOCAL_RANKS):
        return
    node = environment.get("SLURMD_NODENAME", "this node")
    why = _NO_GROUP if starts is None else f"{starts} starts its processes. {_INSTEAD}"
    say(f"{node} trains by itself, without the trainer's other nodes: {why}")


def watch(environment: Mapping[str, str]) -> None:
    """Tell it of this process, if it makes an optimizer and then forms no group for a while."""
    import torch.distributed as dist
    from torch.optim import Optimizer

    init = Optimizer.__init__
    groups: list[object] = []  # that it has formed; it may have destroyed them since
    if dist.is_available():
        before(dist, "init_process_group", groups.append)

    def look() -> None:
        if not groups and not (dist.is_available() and dist.is_initialized()):
            tell(environment, starter(os.getpid()))

    @wraps(init)
    def init_and_look(self: Optimizer, *given: object, **named: object) -> None:
        Optimizer.__init__ = init  # type: ignore[method-assign]
        timer = threading.Timer(SOON_S, look)
        timer.daemon = True
        timer.start()
        init(self, *given, **named)  # type: ignore[arg-type]

    Optimizer.__init__ = init_and_look  # type: ignore[method-assign]
