"""The entry point that every torchrun loads, and whether it uses our rendezvous in this element.

Cheap and harmless outside an element: what does the work is in ``agent``.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous.api import RendezvousHandler, RendezvousParameters

BACKEND = "bftrainer"

# What makes torchrun fork its workers from a process that has imported torch already.
_WARM = {
    "PET_RUN_PATH": "1",
    "PET_START_METHOD": "forkserver",
    "PET_MONITOR_INTERVAL": "0.02",
}
# A command line that decides for itself how workers are started, or where they meet.
_MEET_ELSEWHERE = ("--rdzv-b", "--standalone")
_OWN_WAY = (*_MEET_ELSEWHERE, "--no-python", "--start-m")
_ACCELERATE = "accelerate"
_TORCHRUN = ("torchrun", "run.py")  # as a program, and as a module


def handler() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """Return what makes our rendezvous; torch calls it as torchrun is imported.

    That is before the command line is read, so this is where an element's torchrun is told to
    start warm workers, and where it falls back to stock c10d if ours cannot be loaded.
    """
    if "BFTRAINER_ELEMENT" in os.environ:
        choose(os.environ, sys.argv[1:])
        if why := apart(os.environ, Path(sys.argv[0]).name, sys.argv[1:]):
            print(why, file=sys.stderr, flush=True)
    return _create


def apart(environment: Mapping[str, str], program: str, arguments: Sequence[str]) -> str | None:
    """Say that a command line keeps a node from the trainer's others, None: it does not.

    It would wait for nodes that BFTrainer never brings, or train alone, on each node into the same
    checkpoints.
    """
    told = _meets_elsewhere(arguments)
    if program == _ACCELERATE:  # which has a rendezvous in its own defaults
        told = None if BACKEND in arguments else "accelerate launch"
    elif program not in _TORCHRUN:
        return None
    if told is None:
        return None
    return (
        f"bftrainer: {environment.get('SLURMD_NODENAME', 'this node')} trains apart from the "
        f"trainer's other nodes, as the script says {told}: "
        "write 'srun torchrun train.py' without rendezvous flags"
    )


def _meets_elsewhere(arguments: Sequence[str]) -> str | None:
    """Return torchrun's option that asks for another rendezvous, None: there is none."""
    script = next((at for at, word in enumerate(arguments) if word.endswith(".py")), None)
    for at, word in enumerate(arguments[:script]):
        name, _, value = word.replace("_", "-").partition("=")
        value = value or next(iter(arguments[at + 1 :]), "")
        if name.startswith(_MEET_ELSEWHERE) and value != BACKEND:
            return name
    return None


def choose(environment: MutableMapping[str, str], arguments: Sequence[str]) -> None:
    """Set or unset torchrun's variables for warm workers in an element's environment."""
    if _is_ours(environment, arguments) and _loads(environment):
        for name, value in _WARM.items():
            environment.setdefault(name, value)
        return
    # Stock workers are programs of their own; run_path would take their folder from sys.path.
    for name, value in _WARM.items():
        if environment.get(name) == value:
            del environment[name]


def _is_ours(environment: MutableMapping[str, str], arguments: Sequence[str]) -> bool:
    """Whether torchrun will use our rendezvous; if in doubt, no.

    The script's own options are looked at as well: telling them apart needs torchrun's parser,
    and a script that is taken for one with an own way only starts its workers cold.
    """
    words = [word.replace("_", "-") for word in arguments]
    own_way = any(word.startswith(_OWN_WAY) for word in words if not word.endswith(f"={BACKEND}"))
    return environment.get("PET_RDZV_BACKEND") == BACKEND and not own_way


def _loads(environment: MutableMapping[str, str]) -> bool:
    try:
        import bftrainer_slurm.elastic.agent  # noqa: F401
    except Exception as error:  # an old Python or torch: whatever it says, c10d is there
        warnings.warn(f"bftrainer: stock c10d is used, as {error!r}", stacklevel=2)
        environment["PET_RDZV_BACKEND"] = "c10d"
        return False
    return True


def _create(parameters: RendezvousParameters) -> RendezvousHandler:
    from bftrainer_slurm.elastic.agent import AgentRendezvous

    return AgentRendezvous(parameters, os.environ)
