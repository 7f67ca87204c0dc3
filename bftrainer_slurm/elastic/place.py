"""A process's rank or identity: in an element, or in a world that does not change.

It is read from the variables that the element, torchrun or srun set. Nothing here needs torch.
"""

from __future__ import annotations

import hashlib
import re
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bftrainer_slurm.keeper.messages import Identity, Role
from bftrainer_slurm.keeper.protocol import parse_addresses

_FIRST_NODE = re.compile(r"([^\[,]*)(?:\[(\d+)[^\]]*\]([^,\[]*))?")


@dataclass(frozen=True, slots=True)
class FixedRank:
    """One rank of a fixed world; the ranks meet at ``master``, by torch's own ``env://``."""

    rank: int
    world: int
    master: tuple[str, int]


def fixed_rank(environment: Mapping[str, str]) -> FixedRank:
    """Return the rank from torchrun's variables, else from srun's, else that of a lone process."""
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return FixedRank(
            int(environment["RANK"]),
            int(environment["WORLD_SIZE"]),
            (environment.get("MASTER_ADDR", "127.0.0.1"), int(environment.get("MASTER_PORT", "0"))),
        )
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS", "1"))
    if tasks > 1 and "SLURM_PROCID" in environment:
        job, step = environment["SLURM_JOB_ID"], environment.get("SLURM_STEP_ID", "0")
        port = environment.get("MASTER_PORT") or 20_000 + (int(job) * 31 + int(step)) % 10_000
        node = first_node(environment["SLURM_STEP_NODELIST"])
        return FixedRank(
            int(environment["SLURM_PROCID"]),
            tasks,
            (environment.get("MASTER_ADDR", node), int(port)),
        )
    return FixedRank(0, 1, ("127.0.0.1", 0))


def read_identity(environment: Mapping[str, str], role: Role) -> Identity:
    """Return a process's identity. All but workers are alone in their role on a node.

    Raises:
        KeyError, ValueError: the environment is not an element's.
    """
    array, _, task = environment["BFTRAINER_ELEMENT"].partition("_")
    local_rank, local_world = _local(environment) if role is Role.WORKER else (0, 1)
    return Identity(
        array=int(array),
        task=int(task),
        node=environment.get("SLURMD_NODENAME") or socket.gethostname(),
        role=role,
        local_rank=local_rank,
        local_world=local_world,
        program=_program(environment),
    )


def _program(environment: Mapping[str, str]) -> str:
    """Return what tells a batch script's programs apart, on all nodes alike: its step and script.

    It is the same for torchrun and for the processes that it starts.
    """
    names = [Path(word).name for word in sys.argv if word.endswith(".py")]
    script = next((name for name in names if name != "run.py"), "")  # python -m ...distributed.run
    step = environment.get("BFTRAINER_STEP") or environment.get("SLURM_STEP_ID", "")
    told = f"{step} {script}"
    return hashlib.sha256(told.encode(errors="replace")).hexdigest()[:16]


def own_address(environment: Mapping[str, str]) -> str:
    """Return where a worker's peers reach it: as its user says, or on the route to the keeper."""
    return environment.get("PET_LOCAL_ADDR") or address_towards(environment["BFTRAINER_KEEPER"])


def address_towards(keeper: str) -> str:
    """Return this host's address on the route to the keeper's first host; nothing is sent."""
    host, port = parse_addresses(keeper)[0]
    family, _, _, _, remote = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(remote)
        address: str = probe.getsockname()[0]
        return address


def first_node(nodelist: str) -> str:
    """Return the first name of a Slurm node list such as ``n[3-5,8],login``."""
    match = _FIRST_NODE.match(nodelist)
    assert match is not None  # the pattern matches any text
    return match[1] + (match[2] or "") + (match[3] or "")


def _local(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return this process's rank on its node, and how many there are; an element is one node."""
    if "LOCAL_RANK" in environment:
        return int(environment["LOCAL_RANK"]), int(environment.get("LOCAL_WORLD_SIZE", "1"))
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS", "1"))
    return (int(environment.get("SLURM_LOCALID", "0")) if tasks > 1 else 0), tasks
