"""Command lines: which torchrun starts the processes that a command line would have been."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

_TORCHRUN = ("-m", "torch.distributed.run")
# Python's options that take the next word, python(1).
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_DEEPSPEED = ("deepspeed", "ds")
_DEEPSPEED_MODULE = "deepspeed.launcher.runner"
# Its options without a value; all others before the script have one (DeepSpeed 0.18, runner.py).
_FLAGS = re.compile(
    r"--(module|no_python|no_local_rank|no_ssh\w*|force_multi|elastic_training|bind_cores_to_rank"
    r"|save_pid|quiet)$|-q$"
)
_NUMBER = ("--num_gpus", "--num_accelerators")
LOCAL_RANK = "--local_rank"  # the option that DeepSpeed's launcher gives to each of its processes


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


def without_local_rank(command: Sequence[str], environment: Mapping[str, str]) -> list[str] | None:
    """Return a command line without the rank that its launcher has added; None: it has none."""
    added = f"{LOCAL_RANK}={environment.get('LOCAL_RANK')}"
    if added not in command:
        return None
    return [word for word in command if word != added]


def deepspeeds_arguments(command: Sequence[str]) -> list[str] | None:
    """Return the arguments of DeepSpeed's launcher; None: the command line is another's."""
    if len(command) > 1 and Path(command[1]).name in _DEEPSPEED:
        return list(command[2:])
    for at, (flag, module) in enumerate(pairwise(command)):
        if (flag, module) == ("-m", _DEEPSPEED_MODULE):
            return list(command[at + 2 :])
    return None


def torchrun_for_deepspeed(
    arguments: Sequence[str], python: str, environment: Mapping[str, str]
) -> tuple[list[str], bool] | None:
    """Return the torchrun that does what DeepSpeed's launcher would do on one node.

    And whether each process gets ``LOCAL_RANK`` as an argument. None: there is no script.
    """
    processes = environment.get("PET_NPROC_PER_NODE", "1")
    at = 0
    how = list[str]()
    tells_rank = True
    while at < len(arguments) and arguments[at].startswith("-"):
        name, equals, value = arguments[at].partition("=")
        flag = _FLAGS.match(name)
        if name == "--module":
            how = ["-m"]
        elif name == "--no_python":
            how = ["--no-python"]
        elif name == "--no_local_rank":
            tells_rank = False
        at += 1 if flag or equals else 2
        value = value or arguments[min(at, len(arguments)) - 1]
        if name in _NUMBER:
            processes = value
        elif name in ("--include", "-i") and ":" in value:
            processes = str(len(value.partition("@")[0].partition(":")[2].split(",")))
    if at >= len(arguments):
        return None
    torchrun = [python, *_TORCHRUN, f"--nproc-per-node={processes}", *how, *arguments[at:]]
    return torchrun, tells_rank
