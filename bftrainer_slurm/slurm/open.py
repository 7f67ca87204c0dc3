"""Chooses the gateway: pyslurm where it can be imported, Slurm's commands otherwise."""

from __future__ import annotations

import logging

from bftrainer_slurm.slurm.commands import CommandGateway
from bftrainer_slurm.slurm.gateway import Gateway, GatewayError
from bftrainer_slurm.slurm.pyslurm_gateway import PyslurmGateway

CHOICES = ("auto", "commands", "pyslurm")

_log = logging.getLogger(__name__)


def open_gateway(prefer: str = "auto") -> Gateway:
    """Return the gateway named ``prefer``; ``auto`` takes pyslurm if it can.

    Raises:
        GatewayError: pyslurm was asked for by name, and cannot be imported.
        ValueError: no such gateway.
    """
    if prefer not in CHOICES:
        raise ValueError(f"no gateway '{prefer}'; there are: {', '.join(CHOICES)}")
    if prefer != "commands":
        try:
            return PyslurmGateway()
        except GatewayError as error:
            if prefer == "pyslurm":
                raise
            _log.info("reading through Slurm's commands: %s", error)
    return CommandGateway()
