"""How often the controller asks slurmctld, counted by slurmctld itself (sdiag)."""

from __future__ import annotations

import time

import pytest

from scripts.labcluster.site import Site
from scripts.labcluster.users import account_of
from scripts.labcluster.waiting import wait_until
from scripts.slurmctld_load import requests_of
from tests.controller.sites import IDLE, controlled_with, wait_for_reclaims, wait_for_size

pytestmark = [pytest.mark.slurm, pytest.mark.once, pytest.mark.torch, pytest.mark.timeout(1500)]


def test_it_sends_twelve_rpcs_a_minute_at_rest_and_two_more_for_a_node_that_comes_or_goes(
    site: Site,
) -> None:
    def rpcs() -> int:
        """Those of the controller's account."""
        return requests_of(account_of(site.controller.user), site.run("sdiag").stdout).count

    def rests() -> bool:
        """Whether it sends 11 in 55 s: a whole minute may have one look more, at its very end."""
        since_s, before = time.monotonic(), rpcs()
        time.sleep(55)
        return 0 < (rpcs() - before) * 55 / (time.monotonic() - since_s) <= 11

    with controlled_with(site, {}):
        begin_s, before = time.time(), rpcs()
        array = site.submit(IDLE, "1-4")
        wait_for_size(site, array, 4)
        site.lab.run("srun", "-N4", "--exclusive", "true")
        wait_for_reclaims(site, array, 4)
        wait_for_size(site, array, 4)
        joins, leaves = 8, 4
        at_rest = 12 * ((time.time() - begin_s) / 60 + 1)
        assert rpcs() - before <= at_rest + 2 * (joins + leaves)
        # What follows from the joins takes a while, the longer the busier the machine is.
        wait_until(rests, 700)
