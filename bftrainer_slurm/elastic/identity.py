"""As whom a torchrun agent, or a process that only reports, takes part in its trainer."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from bftrainer_slurm.keeper.membership import Identity, Role


def read_identity(environment: Mapping[str, str], role: Role, address: str = "") -> Identity:
    """Return the identity of a process that is alone in its role on this node.

    Raises:
        KeyError, ValueError: the environment is not an element's.
    """
    array, _, task = environment["BFTRAINER_ELEMENT"].partition("_")
    return Identity(
        array=int(array),
        task=int(task),
        node=environment.get("SLURMD_NODENAME") or socket.gethostname(),
        role=role,
        address=address,
    )
