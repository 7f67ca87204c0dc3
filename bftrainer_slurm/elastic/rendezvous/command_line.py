"""Whether an element's launchers meet at our rendezvous, and what they are called.

Cheap and without torch, as torchrun's start waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

BACKEND = "bftrainer"
CHOICE = "BFTRAINER_RENDEZVOUS"  # "own": the script's launchers keep their own
STARTED_BY = "BFTRAINER_STARTED_BY"  # set where something else has become a torchrun
_MODULES = {"torch.distributed.run", "torch.distributed.launch"}
# What starts processes that train in its place, a program or a module, as users know it.
_ACCELERATE = ("accelerate", "accelerate-launch", "accelerate.commands.launch")
_LAUNCHERS = {
    "torch.distributed.launch": "torch.distributed.launch",
    **dict.fromkeys(_ACCELERATE, "accelerate"),
    **dict.fromkeys(("deepspeed", "ds", "deepspeed.launcher.launch"), "deepspeed"),
    **dict.fromkeys(("llamafactory-cli", "lmf", "llamafactory.cli"), "llamafactory"),
    "tune": "torchtune",
}


def is_ours(environment: Mapping[str, str]) -> bool:
    """Whether an element's trainings meet at our rendezvous: unless its script says otherwise."""
    return environment.get("PET_RDZV_BACKEND") == BACKEND and environment.get(CHOICE) != "own"


def is_torchrun(command: Sequence[str]) -> bool:
    """Whether a process's command line is that of a Python that runs torchrun."""
    is_module = not _MODULES.isdisjoint(command[:4])
    return "python" in Path(command[0] if command else "").name and (
        is_module or Path(command[1] if len(command) > 1 else "").name == "torchrun"
    )


def launcher_of(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the name of what has started a training: see ``keeper.protocol.LAUNCHERS``."""
    module = next((word for flag, word in pairwise(command) if flag == "-m"), "")
    program = Path(command[1]).name if len(command) > 1 else ""
    found = (_LAUNCHERS[one] for one in (module, program) if one in _LAUNCHERS)
    return environment.get(STARTED_BY) or next(found, "torchrun")
