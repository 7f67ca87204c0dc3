"""The entry point that every torchrun loads, and whether it uses our rendezvous in this element.

Cheap and harmless outside an element; the rendezvous itself is in ``agent``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, NoReturn

from bftrainer_slurm.elastic.around import around
from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.elastic.rendezvous.command_line import BACKEND, is_ours
from bftrainer_slurm.elastic.rendezvous.only_launcher import (
    begin_as_in_an_ordinary_job,
    is_only_launcher,
    trains_beside,
)

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous.api import RendezvousHandler, RendezvousParameters
    from torch.distributed.launcher.api import LaunchConfig

_BACKEND = "PET_RDZV_BACKEND"
_ENDPOINT = "PET_RDZV_ENDPOINT"  # not used, but without it torchrun prints a warning
_LOOK_S = 0.02  # from one look of torchrun's to the next, if its user says nothing
_ALONE = (
    "torchrun's own rendezvous c10d needs --rdzv-endpoint=HOST:PORT, else each node trains alone; "
    "without PET_RDZV_BACKEND or rendezvous=own BFTrainer's is used"
)
_ANOTHER = (
    "{} trains already, and a trainer trains one thing at a time: start what this launcher would "
    "train after the other one, or each with an srun of its own (then the others run on one node "
    "alone), or submit a trainer each"
)


def handler() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """Return the function that makes our rendezvous; torch calls this when torchrun is imported.

    That is before torchrun reads its command line, so here an element's torchrun is told to meet
    at ours. A script's ``PET_RDZV_BACKEND`` and the option ``rendezvous=own`` keep torchrun's own.
    """
    if "BFTRAINER_ELEMENT" in os.environ:
        _set_up(os.environ)
    return _create


def _set_up(environment: MutableMapping[str, str]) -> None:
    if is_ours(environment):
        environment.setdefault(_ENDPOINT, BACKEND)
        _meet_here(environment)
        return
    if environment.get(_BACKEND) == BACKEND:
        environment[_BACKEND] = "c10d"
    if environment.get(_ENDPOINT) == BACKEND:
        del environment[_ENDPOINT]
    _refuse_to_train_alone()


def _refuse_to_train_alone() -> None:
    """End a torchrun whose own c10d has no place for its store: each node would train alone."""
    from torch.distributed.launcher.api import LaunchConfig

    def begin_unless_alone(begin: Callable[[LaunchConfig], None], config: LaunchConfig) -> None:
        if (config.rdzv_backend, config.rdzv_endpoint) == ("c10d", "") and config.max_nodes > 1:
            _end(_ALONE)
        begin(config)

    around(LaunchConfig, "__post_init__", begin_unless_alone)


def _meet_here(environment: MutableMapping[str, str]) -> None:
    """Let all torchruns that this process starts use our rendezvous: torch's ``LaunchConfig``.

    torchrun, ``torch.distributed.launch``, accelerate and others all make one. A script's own flags
    name a head node and a number of nodes that hold for an ordinary job only. To be called while
    torch imports its rendezvous, before anything can have made a ``LaunchConfig``.
    """
    from torch.distributed.launcher.api import LaunchConfig

    from bftrainer_slurm.elastic.tasks.seats import launch_for_all

    node = environment.get("SLURMD_NODENAME", "this node")
    usual_s = LaunchConfig.monitor_interval
    launches = False

    def begin_here(begin: Callable[[LaunchConfig], None], config: LaunchConfig) -> None:
        nonlocal launches
        if trains_beside(environment):
            begin_as_in_an_ordinary_job(environment)
        launches = launches or is_only_launcher(environment)
        if not launches:
            _end(_ANOTHER.format(node))
        launch_for_all(config, environment)
        if config.rdzv_backend != BACKEND:
            said = f"{config.rdzv_backend} at {config.rdzv_endpoint or 'no place'}"
            say(f"{node} meets the trainer's other nodes; for ordinary jobs only: {said}")
        config.rdzv_backend = config.rdzv_endpoint = BACKEND
        config.rdzv_configs = {}  # a static rendezvous has the node's rank here
        config.run_id = environment.get("PET_RDZV_ID", config.run_id)
        # Every node lost costs each survivor one restart.
        config.max_restarts = int(environment.get("PET_MAX_RESTARTS", config.max_restarts))
        if config.monitor_interval == usual_s:
            config.monitor_interval = _LOOK_S
        begin(config)

    around(LaunchConfig, "__post_init__", begin_here)


def _create(parameters: RendezvousParameters) -> RendezvousHandler:
    try:
        from bftrainer_slurm.elastic.rendezvous.agent import AgentRendezvous
    except Exception as error:  # an old version may raise anything
        _end(f"torchrun's Python cannot load the rendezvous, install torch 2.6 or later: {error!r}")
    return AgentRendezvous(parameters, os.environ)


def _end(why: str) -> NoReturn:
    say(why)
    raise SystemExit(2)
