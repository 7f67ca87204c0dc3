"""Command lines that keep an element's node from its trainer's other nodes: said in the job's log.

Cheap and without torch: looked at as torchrun begins. Nothing is refused here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_OURS = "bftrainer"
_MEET_ELSEWHERE = ("--rdzv-b", "--standalone")
_ACCELERATE = "accelerate"
_TORCHRUN = ("torchrun", "run.py")  # as a program, and as a module


def warn_if_apart(environment: Mapping[str, str], command: Sequence[str]) -> None:
    """Write a line to the job's log where this command line keeps its node from the others."""
    if why := apart(environment, Path(command[0]).name, command[1:]):
        print(why, file=sys.stderr, flush=True)


def apart(environment: Mapping[str, str], program: str, arguments: Sequence[str]) -> str | None:
    """Say that a command line keeps a node from the trainer's others, None: it does not.

    It would wait for nodes that BFTrainer never brings, or train alone, on each node into the same
    checkpoints.
    """
    told = _meets_elsewhere(arguments)
    if program == _ACCELERATE:  # which has a rendezvous in its own defaults
        told = None if _OURS in arguments else "accelerate launch"
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
        if name.startswith(_MEET_ELSEWHERE) and value != _OURS:
            return name
    return None
