"""How often the controller asks slurmctld, counted by slurmctld itself (sdiag), on a large cluster.

Of its nodes but four are there: the others are only configured, and down.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from scripts.labcluster.site import Site, started_site
from scripts.labcluster.users import account_of
from scripts.labcluster.waiting import wait_until
from scripts.slurmctld_load import down_nodes, requests_of

pytestmark = [pytest.mark.slurm, pytest.mark.once, pytest.mark.torch, pytest.mark.timeout(1500)]


WAITING_JOBS = 2000


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with started_site(nodes=4, settings={}, conf=[down_nodes(5000)]) as running:
        for _ in range(WAITING_JOBS // 100):  # for nodes that are down
            running.lab.sbatch("--array=0-99", "-N100", "-o", "/dev/null", script="#!/bin/sh\n")
        yield running


def rpcs(site: Site) -> int:
    """RPCs that the controller's account has sent."""
    return requests_of(account_of(site.controller.user), site.lab.run("sdiag").stdout).count


def rpcs_of_a_minute(site: Site) -> float:
    """RPCs that it sends in 55 s: a whole minute may have one look more in it, at its very end."""
    since_s, before = time.monotonic(), rpcs(site)
    time.sleep(55)
    sent = rpcs(site) - before
    return sent * 55 / (time.monotonic() - since_s)


def rests_for_a_minute(site: Site) -> bool:
    return 0 < rpcs_of_a_minute(site) <= 11


def all_have_hours(site: Site, array: int) -> bool:
    """Whether all elements have limits of hours; those that backfill starts have minutes first."""
    limits = [line.split() for line in site.lab.squeue(array, "%t %l")]
    return all(limit.count(":") == 2 for state, limit in limits if state == "R")


def test_at_rest_slurmctld_gets_at_most_twelve_rpcs_a_minute(site: Site) -> None:
    arrays = [site.submit("#!/bin/bash\nsrun sleep 1000\n", "1-2") for _ in range(2)]
    running = [lambda array=array: len(site.controller.trainer(array)["nodes"]) == 2
               for array in arrays]  # fmt: skip
    try:
        for runs in running:
            wait_until(runs)
        for array in arrays:
            wait_until(lambda array=array: all_have_hours(site, array))
        # What follows from the joins takes a while, the longer the busier the machine is.
        wait_until(lambda: rests_for_a_minute(site), 700)
    finally:
        site.end(*arrays)


def test_a_join_and_a_leave_cost_at_most_two_rpcs_a_node_beside_that(site: Site) -> None:
    begin_s, before = time.time(), rpcs(site)
    array = site.submit("#!/bin/bash\nsrun sleep 1000\n", "1-4")
    wait_until(lambda: len(site.controller.trainer(array)["nodes"]) == 4)
    site.lab.run("srun", "-N4", "--exclusive", "true")
    wait_until(lambda: site.controller.trainer(array)["reclaimed"] == 4)
    wait_until(lambda: len(site.controller.trainer(array)["nodes"]) == 4)
    joins, leaves = 8, 4
    at_rest = 12 * ((time.time() - begin_s) / 60 + 1)
    assert rpcs(site) - before <= at_rest + 2 * (joins + leaves)
    site.end(array)
