"""The entry point that every torchrun loads, and whether it uses our rendezvous in this element.

Cheap and harmless outside an element; the rendezvous itself is in ``agent``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from bftrainer_slurm.elastic.around import around
from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.elastic.rendezvous.command_line import (
    BACKEND,
    is_launcher,
    is_ours,
    is_torchrun,
    overridden,
    trains_alone,
)
from bftrainer_slurm.elastic.rendezvous.only_launcher import (
    begin_as_in_an_ordinary_job,
    is_only_launcher,
    trains_beside,
)

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous.api import RendezvousHandler, RendezvousParameters
    from torch.distributed.launcher.api import LaunchConfig

_QUICK = {
    "PET_MONITOR_INTERVAL": "0.02",
    "PET_RDZV_ENDPOINT": BACKEND,  # not used, but without it torchrun prints a warning
}
_ANOTHER = (
    "{} trains already, and a trainer trains one thing at a time: start what this launcher would "
    "train after the other one, or each with an srun of its own (then the others run on one node "
    "alone), or submit a trainer each"
)


def handler() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """Return the function that makes our rendezvous; torch calls this when torchrun is imported.

    That is before torchrun reads its command line, so here an element's torchrun is told to meet
    at ours. A script's ``PET_RDZV_BACKEND``, and the
    option ``rendezvous=own``, keep torchrun's own.

    Raises:
        SystemExit: the element's torchrun would train alone.
    """
    if "BFTRAINER_ELEMENT" in os.environ:
        _set_up(os.environ, sys.argv[1:])
    return _create


def _set_up(environment: MutableMapping[str, str], arguments: Sequence[str]) -> None:
    if is_torchrun(sys.orig_argv) and trains_beside(environment):
        begin_as_in_an_ordinary_job(environment)
    choose(environment)
    if not is_ours(environment):
        if environment.get("PET_RDZV_BACKEND") == BACKEND:
            environment["PET_RDZV_BACKEND"] = "c10d"
        if is_torchrun(sys.orig_argv) and trains_alone(environment, arguments):
            _end(
                "torchrun's own rendezvous c10d needs --rdzv-endpoint=HOST:PORT, else each node "
                "trains alone; without PET_RDZV_BACKEND or rendezvous=own BFTrainer's is used"
            )
        return
    _meet_here(environment)
    if is_launcher(sys.orig_argv) and (said := overridden(arguments)):
        node = environment.get("SLURMD_NODENAME", "this node")
        say(f"{node} meets the trainer's other nodes; this holds for ordinary jobs only: {said}")


def _meet_here(environment: Mapping[str, str]) -> None:
    """Let all torchruns that this process starts use our rendezvous: torch's ``LaunchConfig``.

    torchrun, ``torch.distributed.launch``, accelerate and others all make one. A script's own flags
    name a head node and a number of nodes that hold for an ordinary job only. To be called while
    torch imports its rendezvous, before anything can have made a ``LaunchConfig``.
    """
    from torch.distributed.launcher.api import LaunchConfig

    from bftrainer_slurm.elastic.tasks.seats import launch_once

    launches = False

    def begin_here(begin: Callable[[LaunchConfig], None], config: LaunchConfig) -> None:
        nonlocal launches
        if trains_beside(environment):
            begin_as_in_an_ordinary_job(environment)
        launch_once(config, environment)
        launches = launches or is_only_launcher(environment)
        if not launches:
            _end(_ANOTHER.format(environment.get("SLURMD_NODENAME", "this node")))
        config.rdzv_backend = config.rdzv_endpoint = BACKEND
        config.rdzv_configs = {}  # a static rendezvous has the node's rank here
        config.run_id = environment.get("PET_RDZV_ID", config.run_id)
        # Every node lost costs each survivor one restart.
        config.max_restarts = int(environment.get("PET_MAX_RESTARTS", config.max_restarts))
        begin(config)

    around(LaunchConfig, "__post_init__", begin_here)


def choose(environment: MutableMapping[str, str]) -> None:
    """Set or unset what torchrun reads in an element's environment for ours alone."""
    ours = is_ours(environment) and why_not() is None
    for name, value in _QUICK.items():
        if ours:
            environment.setdefault(name, value)
        elif environment.get(name) == value:
            del environment[name]


def why_not() -> str | None:
    """Return why our rendezvous cannot work with this Python and torch; None: it can."""
    try:
        import bftrainer_slurm.elastic.rendezvous.agent  # noqa: F401
    except Exception as error:  # an old version may raise anything
        return repr(error)
    return None


def _create(parameters: RendezvousParameters) -> RendezvousHandler:
    reason = why_not()
    if reason is not None:
        _end(f"torchrun's Python cannot load the rendezvous, install torch 2.6 or later: {reason}")
    from bftrainer_slurm.elastic.rendezvous.agent import AgentRendezvous

    return AgentRendezvous(parameters, os.environ)


def _end(why: str) -> NoReturn:
    say(why)
    raise SystemExit(2)
