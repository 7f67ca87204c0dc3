"""torchrun's command lines: where one would meet the trainer's other nodes.

Cheap and without torch, as torchrun's start waits for it. Nothing is refused here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

BACKEND = "bftrainer"
CHOICE = "BFTRAINER_RENDEZVOUS"  # "own": the script's launchers keep their own
STARTED_BY = "BFTRAINER_STARTED_BY"  # set where something else has become a torchrun
# What starts processes that train in its place, a program or a module, as users know it.
_LLAMA_FACTORY = dict.fromkeys(("llamafactory-cli", "lmf", "llamafactory.cli"), "llamafactory")
_ACCELERATE = ("accelerate", "accelerate-launch", "accelerate.commands.launch")
_LAUNCHERS = {
    "torch.distributed.launch": "torch.distributed.launch",
    **dict.fromkeys(_ACCELERATE, "accelerate"),
    **dict.fromkeys(("deepspeed", "ds", "deepspeed.launcher.launch"), "deepspeed"),
    **_LLAMA_FACTORY,
    "tune": "torchtune",
}
_MEET_ELSEWHERE = ("--rdzv-b", "--rdzv-e", "--standalone", "--master-", "--node-r", "--machine-r")


def is_ours(environment: Mapping[str, str]) -> bool:
    """Whether an element's trainings meet at our rendezvous: unless its script says otherwise."""
    return environment.get("PET_RDZV_BACKEND") == BACKEND and environment.get(CHOICE) != "own"


def options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each word of a command line with its value: after its ``=``, or the next word."""
    for word, following in zip(arguments, [*arguments[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        yield name.replace("_", "-"), value if equals else following


def is_torchrun(command: Sequence[str]) -> bool:
    """Whether this command line is torchrun's: a script may import torchrun too."""
    module = "torch.distributed.run" in command[:4]
    return module or any(Path(word).name == "torchrun" for word in command[:2])


def is_launcher(command: Sequence[str]) -> bool:
    """Whether a Python's command line starts processes that train in its place."""
    return is_torchrun(command) or not _LAUNCHERS.keys().isdisjoint(_module_and_program(command))


def is_llama_factory(command: Sequence[str]) -> bool:
    """Whether a Python's command line is LLaMA Factory's."""
    return not _LLAMA_FACTORY.keys().isdisjoint(_module_and_program(command))


def launcher_of(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the name of what has started a training: see ``keeper.protocol.LAUNCHERS``."""
    found = (_LAUNCHERS[one] for one in _module_and_program(command) if one in _LAUNCHERS)
    return environment.get(STARTED_BY) or next(found, "torchrun")


def _module_and_program(command: Sequence[str]) -> tuple[str, str]:
    module = next((word for flag, word in pairwise(command) if flag == "-m"), "")
    return module, Path(command[1]).name if len(command) > 1 else ""


def trains_alone(environment: Mapping[str, str], arguments: Sequence[str]) -> bool:
    """Whether torchrun uses its c10d without a store's address: then each node trains alone."""
    backend = environment.get("PET_RDZV_BACKEND", "")
    for name, value in options(arguments):
        if name.startswith(("--rdzv-e", "--standalone")):
            return False
        if name.startswith("--rdzv-b"):
            backend = value
    return backend == "c10d" and not environment.get("PET_RDZV_ENDPOINT")


def overridden(arguments: Sequence[str]) -> str:
    """Return the options by which a launcher's command line would meet elsewhere; empty: none."""
    script = next((at for at, word in enumerate(arguments) if word.endswith((".py", ".sh"))), None)
    own = list(arguments[:script])
    said = [
        name
        for name, (_, value) in zip(own, options(own), strict=True)
        if name.replace("_", "-").startswith(_MEET_ELSEWHERE) and value != BACKEND
    ]
    return ", ".join(said)
