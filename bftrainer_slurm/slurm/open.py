"""Chooses the gateway: pyslurm where it can be imported, Slurm's commands otherwise."""

from __future__ import annotations

import logging
import shutil
import subprocess
from pathlib import Path

from bftrainer_slurm.slurm.commands import CommandGateway
from bftrainer_slurm.slurm.gateway import Gateway, GatewayError
from bftrainer_slurm.slurm.pyslurm_gateway import PyslurmGateway

CHOICES = ("auto", "commands", "pyslurm")

_GROW = "bftrainer-grow"
_BUILT_HERE = Path(__file__).resolve().parents[2] / "build" / "slurm_plugin" / _GROW

_log = logging.getLogger(__name__)


def open_gateway(prefer: str = "auto") -> Gateway:
    """Return the gateway named ``prefer``; ``auto`` takes pyslurm if it can.

    Raises:
        GatewayError: pyslurm was asked for by name, and cannot be imported.
        ValueError: no such gateway.
    """
    if prefer not in CHOICES:
        raise ValueError(f"no gateway '{prefer}'; there are: {', '.join(CHOICES)}")
    grow_program = find_grow_program()
    if prefer != "commands":
        try:
            return PyslurmGateway(grow_program=grow_program)
        except GatewayError as error:
            if prefer == "pyslurm":
                raise
            _log.info("reading through Slurm's commands: %s", error)
    return CommandGateway(grow_program=grow_program)


def find_grow_program() -> str | None:
    """Return the path of bftrainer-grow: on PATH, or built in this checkout; None without one.

    One that was built for another Slurm does not start, and is not taken.
    """
    for path in (shutil.which(_GROW), str(_BUILT_HERE)):
        if path is not None and Path(path).is_file():
            tried = subprocess.run(
                [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
            if tried.returncode == 0:
                return path
    return None
