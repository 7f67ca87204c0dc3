"""Every torchrun of an element meets at BFTrainer's rendezvous, whatever its command line says.

A script's own flags name a head node and a number of nodes that hold for an ordinary job only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from bftrainer_slurm.elastic.around import around
from bftrainer_slurm.elastic.rendezvous.command_line import BACKEND

if TYPE_CHECKING:
    from torch.distributed.launcher.api import LaunchConfig


def meet_here(environment: Mapping[str, str]) -> None:
    """Let all torchruns that this process starts use our rendezvous: torch's ``LaunchConfig``.

    torchrun, ``torch.distributed.launch``, accelerate and others all make one. To be called while
    torch imports its rendezvous, before anything can have made a ``LaunchConfig``.
    """
    from torch.distributed.launcher.api import LaunchConfig

    from bftrainer_slurm.elastic.tasks.seats import launch_once

    def begin_here(begin: Callable[[LaunchConfig], None], config: LaunchConfig) -> None:
        launch_once(config, environment)
        config.rdzv_backend = config.rdzv_endpoint = BACKEND
        config.rdzv_configs = {}  # a static rendezvous has the node's rank here
        config.run_id = environment.get("PET_RDZV_ID", config.run_id)
        # Every node lost costs each survivor one restart.
        config.max_restarts = int(environment.get("PET_MAX_RESTARTS", config.max_restarts))
        begin(config)

    around(LaunchConfig, "__post_init__", begin_here)
