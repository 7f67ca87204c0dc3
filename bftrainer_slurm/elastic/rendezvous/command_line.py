"""torchrun's command lines: whether one keeps its node apart from the trainer's other nodes.

Cheap and without torch, as torchrun's start waits for it. Nothing is refused here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

BACKEND = "bftrainer"
_MEET_ELSEWHERE = ("--rdzv-b", "--standalone")
_UNLESS = ", unless all of them say the same endpoint"
_ACCELERATE = "accelerate"
_TORCHRUN = ("torchrun", "run.py")  # as a program or as a module


def options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each word of a command line with its value: after its ``=``, or the next word."""
    for word, following in zip(arguments, [*arguments[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        yield name.replace("_", "-"), value if equals else following


def is_torchrun(command: Sequence[str]) -> bool:
    """Whether this command line is torchrun's: a script may import torchrun too."""
    module = "torch.distributed.run" in command[:4]
    return module or any(Path(word).name == "torchrun" for word in command[:2])


def trains_alone(environment: Mapping[str, str], arguments: Sequence[str]) -> bool:
    """Whether torchrun uses its c10d without a store's address: then each node trains alone."""
    backend = environment.get("PET_RDZV_BACKEND", "")
    for name, value in options(arguments):
        if name.startswith(("--rdzv-e", "--standalone")):
            return False
        if name.startswith("--rdzv-b"):
            backend = value
    return backend == "c10d" and not environment.get("PET_RDZV_ENDPOINT")


def apart(environment: Mapping[str, str], program: str, arguments: Sequence[str]) -> str | None:
    """Say that a command line keeps a node apart from the trainer's others; None: it does not.

    Such a node waits for nodes that never come, or each node trains alone, and all of them write
    the same checkpoints.
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
    """Return torchrun's option that asks for another rendezvous; None: there is none."""
    script = next((at for at, word in enumerate(arguments) if word.endswith(".py")), None)
    own = dict(options(arguments[:script]))
    for name, value in own.items():
        if name.startswith(_MEET_ELSEWHERE) and value != BACKEND:
            named = "--standalone" not in own and any(one.startswith("--rdzv-e") for one in own)
            return name + _UNLESS if named else name
    return None
