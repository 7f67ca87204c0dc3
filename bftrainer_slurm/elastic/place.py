"""A process's identity and address in an element. Nothing here needs torch."""

from __future__ import annotations

import hashlib
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from bftrainer_slurm.keeper.messages import Identity, Role
from bftrainer_slurm.keeper.protocol import parse_addresses


def read_identity(environment: Mapping[str, str], role: Role) -> Identity:
    """Return a process's identity.

    Raises:
        KeyError, ValueError: the environment is not an element's.
    """
    array, _, task = environment["BFTRAINER_ELEMENT"].partition("_")
    return Identity(
        array=int(array),
        task=int(task),
        node=environment.get("SLURMD_NODENAME") or socket.gethostname(),
        role=role,
        program=_program(environment),
        step=_step(environment),
    )


def step_and_script(environment: Mapping[str, str]) -> tuple[str, str]:
    """Return what tells a batch script's programs apart, on all nodes alike: its step and script.

    It is the same for torchrun and for the processes that it starts. Without an srun it has no
    step: an empty text.
    """
    names = [Path(word).name for word in sys.argv if word.endswith(".py")]
    script = next((name for name in names if name != "run.py"), "")  # python -m ...distributed.run
    return environment.get("BFTRAINER_STEP") or environment.get("SLURM_STEP_ID", ""), script


def _step(environment: Mapping[str, str]) -> int:
    """Return the number of the batch script's srun that this process is in, see ``Identity``."""
    return int(environment.get("BFTRAINER_STEP") or -1 - ("SLURM_STEP_ID" in environment))


def _program(environment: Mapping[str, str]) -> str:
    told = " ".join(step_and_script(environment))
    return hashlib.sha256(told.encode(errors="replace")).hexdigest()[:16]


def address_towards(keeper: str) -> str:
    """Return this host's address on the route to the keeper's first host; nothing is sent."""
    host, port = parse_addresses(keeper)[0]
    family, _, _, _, remote = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(remote)
        address: str = probe.getsockname()[0]
        return address
