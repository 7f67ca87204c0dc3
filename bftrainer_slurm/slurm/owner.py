"""The account that Slurm itself runs as: it tells a site's controller from a user's own."""

from __future__ import annotations

import re

from bftrainer_slurm.slurm.gateway import GatewayError
from bftrainer_slurm.slurm.run import SlurmRunner

_SLURM_USER = re.compile(r"^SlurmUser\s*=\s*(?P<name>[^(\s]+)", re.MULTILINE)


def slurm_user(runner: SlurmRunner | None = None) -> str:
    """Return the name of SlurmUser; one RPC, and a ping for each slurmctld.

    Raises:
        GatewayError: slurmctld does not answer, or does not name it.
    """
    # The exit status is 1 if slurmctld answers, but then limits the pings (rl_enable).
    text = (runner or SlurmRunner()).read("scontrol", "show", "config", also=1)
    match = _SLURM_USER.search(text)
    if match is None:
        raise GatewayError("'scontrol show config' does not name SlurmUser")
    return match["name"]
