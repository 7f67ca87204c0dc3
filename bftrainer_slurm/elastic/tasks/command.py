"""Command lines: which torchrun starts the processes that a command line would have been."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_TORCHRUN = ("-m", "torch.distributed.run")
# Python's options that take the next word, python(1).
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
# DeepSpeed's options without a value; all others before the script have one.
_FLAGS = re.compile(
    r"--(module|no_python|no_local_rank|no_ssh\w*|force_multi|elastic_training|bind_cores_to_rank)$"
)


def tasks_on_node(environment: Mapping[str, str]) -> int:
    """Return how many tasks srun started here, an element being one node; 1 outside a step."""
    return int(environment.get("SLURM_STEP_NUM_TASKS", "1"))


def torchrun_for(command: Sequence[str], python: str, processes: int) -> list[str] | None:
    """Return the torchrun whose workers are what a Python's command line would have been.

    None if it cannot be started twice: code in the command line, or from standard input.

    Args:
        command: ``sys.orig_argv``.
        python: ``sys.executable``.
        processes: how many on this node.
    """
    at = 1
    while at < len(command) and command[at].startswith("-") and command[at][:2] not in ("-m", "-c"):
        at += 2 if command[at] in _WITH_VALUE else 1
    target = list(command[at:])
    if not target or target[0].startswith("-c") or command[at - 1] == "-":
        return None
    if target[0].startswith("-m") and target[0] != "-m":
        target[:1] = ["-m", target[0][2:]]
    return [python, *command[1:at], *_TORCHRUN, f"--nproc-per-node={processes}", *target]


def torchrun_for_deepspeed(
    arguments: Sequence[str], python: str, environment: Mapping[str, str]
) -> list[str] | None:
    """Return the torchrun that does what DeepSpeed's launcher would do on one node.

    None where it starts no Python script.
    """
    processes = environment.get("PET_NPROC_PER_NODE", "1")
    at = 0
    module = list[str]()
    while at < len(arguments) and arguments[at].startswith("-"):
        name, equals, value = arguments[at].partition("=")
        flag = _FLAGS.match(name)
        if name == "--no_python":
            return None
        if name == "--module":
            module = ["-m"]
        at += 1 if flag or equals else 2
        if name == "--num_gpus":
            processes = value or arguments[at - 1]
    if at >= len(arguments):
        return None
    return [python, *_TORCHRUN, f"--nproc-per-node={processes}", *module, *arguments[at:]]
