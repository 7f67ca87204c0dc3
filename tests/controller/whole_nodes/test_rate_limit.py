"""Under slurmctld's own limit on a user's requests (rl_enable, since 23.02).

A user's own controller: SlurmUser, which the site's runs as, is exempt.
"""

from __future__ import annotations

import os

import pytest

from scripts.labcluster.site import Site
from scripts.labcluster.waiting import wait_until
from tests.controller.sites import IDLE, controlled_by_bob, slurm_has, submit_personal
from tests.installed_slurm import slurm_version

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.newest,
    pytest.mark.torch,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(slurm_version() < (23, 2), reason="rl_enable came with Slurm 23.02"),
    pytest.mark.skipif(os.getuid() != 0, reason="needs root to be several users"),
]
# Several looks that take so long that each of them is followed by the longest rest there is.
_PATIENCE_S = 600


def test_nodes_come_and_go_without_complaint_under_the_usual_limit(site: Site) -> None:
    """Of a trainer of bob's, which bob's controller runs by commands: these ask most."""
    with (
        slurm_has(site, "SlurmctldParameters=rl_enable"),
        controlled_by_bob(site, "--gateway", "commands") as own,
    ):
        array = submit_personal(site, own, IDLE, "1-4")
        wait_until(lambda: len(own.trainer(array)["nodes"]) == 4, _PATIENCE_S)
        site.lab.run("srun", "-N4", "--exclusive", "true")  # alice's
        wait_until(lambda: own.trainer(array)["reclaimed"] == 4, _PATIENCE_S)
        wait_until(lambda: len(own.trainer(array)["nodes"]) == 4, _PATIENCE_S)
        lines = own.log.read_text().splitlines()
        # On a busy machine slurmctld may be slow to answer by itself. This host's program is
        # built for its own Slurm, and cannot run beside another one.
        usual = (" INFO ", "slurmctld took", "bftrainer-grow is not used")
        assert [line for line in lines if not any(word in line for word in usual)] == []
