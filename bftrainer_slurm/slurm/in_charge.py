"""On which host slurmctld is in charge, in Slurm's own words: ``scontrol ping``.

From 22.05 to 26.05 it prints a line for each of slurmctld's hosts, in slurm.conf's order: "UP" if
slurmctld answers there, at work or standing by. A host gives way to those before it when they come
back, so the first one that is UP is in charge, or will be within SlurmctldTimeout.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from bftrainer_slurm.slurm.gateway import GatewayError
from bftrainer_slurm.slurm.run import SlurmRunner

_CONFS = (Path("/etc/slurm/slurm.conf"), Path("/run/slurm/conf/slurm.conf"))  # or configless
_HOST = re.compile(r"^Slurmctld\(\w+\) at (\S+) is (UP|DOWN)$", re.MULTILINE)


def ping(runner: SlurmRunner) -> Mapping[str, bool]:
    """Return whether each of slurmctld's hosts answers, in slurm.conf's order.

    Raises:
        GatewayError: the command fails.
    """
    answer = runner.read("scontrol", "ping", accepted_status=1)  # 1: no host answers
    return {host: state == "UP" for host, state in _HOST.findall(answer)}


def in_charge(hosts: Mapping[str, bool]) -> str | None:
    """Return the host where slurmctld is in charge, or will be; None if no host answers."""
    return next((host for host, answers in hosts.items() if answers), None)


def conf_for(host: str, folder: Path, usual: str | None) -> str | None:
    """Write a slurm.conf into ``folder`` with which commands ask slurmctld on this host alone.

    With the ``usual`` one (SLURM_CONF) each command waits TCPTimeout (2 s) for a silent host that
    stands before it. Return the new one's path, or the usual one if there is none to include.

    Raises:
        OSError: it cannot be written.
    """
    conf = next((one for one in ((Path(usual),) if usual else _CONFS) if one.is_file()), None)
    if conf is None:
        return usual
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for file in conf.parent.iterdir():  # keys, for example
        (folder / file.name).symlink_to(file)
    made = folder / conf.name
    made.unlink()
    made.write_text(f"Include {conf}\nSlurmctldAddr={host}\n")
    return str(made)


def obeys(runner: SlurmRunner) -> bool:
    """Return whether slurmctld does what it is asked: one that stands by refuses."""
    try:
        runner.read("scontrol", "show", "reservation")
    except GatewayError:
        return False
    return True
