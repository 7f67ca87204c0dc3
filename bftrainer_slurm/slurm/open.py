"""Chooses the gateway: bftrainer-look if installed, else pyslurm, else Slurm's commands."""

from __future__ import annotations

import logging
import shutil
import subprocess
from pathlib import Path

from bftrainer_slurm.slurm.commands import CommandGateway
from bftrainer_slurm.slurm.gateway import CHOICES, Gateway, GatewayError
from bftrainer_slurm.slurm.look_gateway import LookGateway
from bftrainer_slurm.slurm.pyslurm_gateway import PyslurmGateway

GROW, LOOK = "bftrainer-grow", "bftrainer-look"
_START_S = 10.0  # how long one may take to say its version
_BUILT_HERE = Path(__file__).resolve().parents[2] / "build" / "slurm_plugin"

_log = logging.getLogger(__name__)


def open_gateway(prefer: str = "auto", share: bool = False) -> Gateway:
    """Return the gateway named ``prefer``; ``auto`` takes the one with the fewest requests.

    With ``share`` trainers may have parts of nodes; pyslurm does not tell what is left of a node.

    Raises:
        GatewayError: the named gateway is not available; the message says why.
        ValueError: there is no gateway of this name.
    """
    if prefer not in CHOICES:
        raise ValueError(f"no gateway '{prefer}'; there are: {', '.join(CHOICES)}")
    grow_program = find_program(GROW)
    if prefer == "commands":
        return CommandGateway(grow_program=grow_program, share=share)
    look_program = find_program(LOOK)
    if prefer in ("auto", "look") and look_program is not None:
        return LookGateway(look_program, grow_program=grow_program, share=share)
    if prefer == "look":
        raise GatewayError(f"{LOOK} is not on PATH, or does not start; build and install it")
    if prefer == "pyslurm" and share:
        raise GatewayError(f"share = true needs {LOOK}, or gateway = 'commands'")
    try:
        if share:
            raise GatewayError("pyslurm does not tell what is left of a node")
        return PyslurmGateway(grow_program=grow_program)
    except GatewayError as error:
        if prefer == "pyslurm":
            raise
        _log.info("reading through Slurm's commands: %s", error)
    return CommandGateway(grow_program=grow_program, share=share)


def find_program(name: str) -> str | None:
    """Return the path of one of our programs, on PATH or built in this checkout; None if missing.

    A program for another Slurm or another kind of processor does not start. It counts as missing,
    and the log says why.
    """
    for path in (shutil.which(name), str(_BUILT_HERE / name)):
        if path is None or not Path(path).is_file():
            continue
        why = _why_not(path)
        if not why:
            return path
        _log.warning("%s is not used: %s", path, why)
    return None


def _why_not(path: str) -> str:
    """Return why a program does not start; empty if it does."""
    try:
        tried = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_START_S
        )
    except subprocess.TimeoutExpired:
        return f"it does not answer within {_START_S:g} s"
    except OSError as error:
        return f"it cannot be run ({error.strerror})"
    if tried.returncode == 0:
        return ""
    said = tried.stderr.decode(errors="replace").strip().splitlines()
    return said[-1] if said else f"it ends with exit status {tried.returncode}"
