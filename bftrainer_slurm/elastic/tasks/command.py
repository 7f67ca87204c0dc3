"""Command lines: which torchrun starts the processes that a command line would have been."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_TORCHRUN = ("-m", "torch.distributed.run")
# Python's options that take the next word, python(1).
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
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


def torchrun_for_deepspeed(options: Any, python: str, processes: str) -> list[str]:
    """Return the torchrun that does what DeepSpeed's launcher would do on one node.

    ``options``: its own, as its ``parse_args`` returns them. ``processes``: how many, if those do
    not say it.
    """
    _, slots, own = options.include.partition("@")[0].partition(":")
    if options.num_gpus > 0:
        processes = str(options.num_gpus)
    elif slots:
        processes = str(len(own.split(",")))
    how = ["-m"] if options.module else ["--no-python"] if options.no_python else []
    script = [options.user_script, *options.user_args]
    return [python, *_TORCHRUN, f"--nproc-per-node={processes}", *how, *script]
