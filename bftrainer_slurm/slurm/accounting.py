"""Reads Slurm's accounting: past jobs, nodes that were down, reservations."""

from __future__ import annotations

from bftrainer_slurm.slurm.run import SlurmRunner

PATIENCE_S = 900.0  # a month of a large site may take slurmdbd minutes
_SHOW = ["sacctmgr", "--parsable2", "show"]


def jobs(runner: SlurmRunner, hours: int, options: str) -> str:
    """Return what sacct prints about the last hours, with these options; times are Unix seconds.

    Raises:
        GatewayError: sacct cannot be run, or slurmdbd does not answer.
    """
    span = ("--endtime=now", f"--starttime=now-{hours}hours")
    return runner.read("sacct", *options.split(), *span)


def node_events(runner: SlurmRunner, hours: int) -> str:
    """Return when nodes were down or drained in the last hours. Raises GatewayError."""
    return _times(runner, hours, "event")


def reservations(runner: SlurmRunner, hours: int) -> str:
    """Return which nodes were reserved in the last hours. Raises GatewayError."""
    return _times(runner, hours, "reservation")


def _times(runner: SlurmRunner, hours: int, what: str) -> str:
    columns = "format=NodeName,TimeStart,TimeEnd"
    return runner.read(*_SHOW, what, columns, f"start=now-{hours}hours")


def node_names(runner: SlurmRunner) -> str:
    """Return all nodes of the cluster, in Slurm's syntax. Raises GatewayError."""
    return ",".join(runner.read("sinfo", "--local", "--noheader", "--all", "--format=%N").split())
