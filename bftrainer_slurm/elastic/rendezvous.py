"""The entry point that every torchrun loads, and whether it uses our rendezvous in this element.

Cheap and harmless outside an element: what does the work is in ``agent``.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING

from bftrainer_slurm.elastic.apart import warn_if_apart

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
_OWN_WAY = ("--rdzv-b", "--standalone", "--no-python", "--start-m")


def handler() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """Return what makes our rendezvous; torch calls it as torchrun is imported.

    That is before the command line is read, so this is where an element's torchrun is told to
    start warm workers, and where it falls back to stock c10d if ours cannot be loaded.
    """
    if "BFTRAINER_ELEMENT" in os.environ:
        choose(os.environ, sys.argv[1:])
        warn_if_apart(os.environ, sys.argv)
    return _create


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
