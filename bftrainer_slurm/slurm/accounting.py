"""What Slurm's accounting says of the past: its jobs, and when nodes were down. Reads only."""

from __future__ import annotations

from bftrainer_slurm.slurm.run import SlurmRunner

PATIENCE_S = 900.0  # a month of a large site may take slurmdbd minutes
_JOBS = [
    "sacct",
    "--allusers",
    "--allocations",
    "--duplicates",
    "--noconvert",
    "--parsable2",
    "--endtime=now",
]
_EVENTS = ["sacctmgr", "--parsable2", "show", "event", "format=NodeName,TimeStart,TimeEnd,State"]


def jobs(runner: SlurmRunner, hours: int, columns: str) -> str:
    """Return what sacct prints of all jobs of the last hours; times are Unix seconds.

    Raises:
        GatewayError: it cannot be run, or slurmdbd does not answer.
    """
    return runner.read(*_JOBS, f"--starttime=now-{hours}hours", f"--format={columns}")


def node_events(runner: SlurmRunner, hours: int) -> str:
    """Return when nodes were down or drained in the last hours. Raises GatewayError."""
    return runner.read(*_EVENTS, f"start=now-{hours}hours")


def node_names(runner: SlurmRunner) -> str:
    """Return all nodes of the cluster, in Slurm's syntax. Raises GatewayError."""
    return ",".join(runner.read("sinfo", "--noheader", "--all", "--format=%N").split())
