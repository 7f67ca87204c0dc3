"""Who Slurm itself runs as, which tells a site's controller from a user's own."""

from __future__ import annotations

import re

from bftrainer_slurm.slurm.gateway import GatewayError
from bftrainer_slurm.slurm.run import SlurmRunner

_SLURM_USER = re.compile(r"^SlurmUser\s*=\s*(?P<name>[^(\s]+)", re.MULTILINE)


def slurm_user(runner: SlurmRunner | None = None) -> str:
    """Return the name of SlurmUser; one RPC, and a ping for each slurmctld.

    Raises:
        GatewayError: slurmctld does not answer, or not with that.
    """
    # Its exit status is 1 where slurmctld has told all, and then limits (rl_enable) the pings.
    text = (runner or SlurmRunner()).read("scontrol", "show", "config", also=1)
    match = _SLURM_USER.search(text)
    if match is None:
        raise GatewayError("'scontrol show config' does not name SlurmUser")
    return match["name"]
