"""On a real cluster: how often slurmctld is asked, under its own limit too (rl_enable).

And a queue that backfill does not come to the end of, where elements are.
"""

from __future__ import annotations

import json
import os
import re
import time

import pytest

from scripts.labcluster.lab import ADMIN
from scripts.labcluster.site import Site
from scripts.labcluster.users import account_of
from scripts.labcluster.waiting import wait_until
from scripts.slurmctld_load import requests_of
from tests.controller.sites import (
    IDLE,
    controlled_by_bob,
    controlled_with,
    runs,
    slurm_has,
    submit_personal,
    wait_for_reclaims,
    wait_for_size,
)
from tests.installed_slurm import slurm_version

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1500)]

MOST, WAITING = 50, 120
PASSES = "SchedulerParameters=bf_interval=5"
# Several looks that take so long that each of them is followed by the longest rest there is.
PATIENCE_S = 600


@pytest.mark.newest
def test_a_queue_that_stops_passes_is_told_and_doctors_lines_start_trainers(site: Site) -> None:
    """Three nodes are busy and one is idle; all other jobs wait for all four."""
    words = "-p main -N4 --exclusive --time=10 -o /dev/null --wrap=true"
    submit = f"for n in $(seq {WAITING}); do sbatch -Q {words} >/dev/null; done"
    with slurm_has(site, f"{PASSES},bf_max_job_test={MOST}"), site.taken(3, "--time=60"):
        site.run("bash", "-c", submit)
        array = site.submit(IDLE, "1-1")
        told = lambda: "".join(site.controller.status()["controller"]["slurm"])  # noqa: E731
        wait_until(lambda: " tries with " in told(), 60)
        explained = site.run("bftrainer", "explain", str(array)).stdout
        assert re.search(r"stopped\s+after\s+\d+\s+tries", explained)
        assert not runs(site, array)
        assert not site.controller.status()["barred"]

        done = site.run("bftrainer", "doctor", "--json", user=ADMIN, check=False)
        findings = json.loads(done.stdout)["findings"]
        (finding,) = (one for one in findings if one["check"] == "bf_max_job_test")
        assert finding["level"] == "change"
        options = [change["line"].partition("=...,")[2] for change in finding["changes"]]
        with slurm_has(site, ",".join([PASSES, *options])):
            wait_until(lambda: runs(site, array), 60)
            wait_until(lambda: not site.controller.status()["stopped_pass"])
            site.run("scancel", "--me")  # all at once, while passes come to their end


@pytest.mark.once
@pytest.mark.torch
def test_it_sends_twelve_rpcs_a_minute_at_rest_and_two_more_for_a_node_that_comes_or_goes(
    site: Site,
) -> None:
    """Counted by slurmctld itself (sdiag)."""

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


@pytest.mark.newest
@pytest.mark.torch
@pytest.mark.timeout(3600)
@pytest.mark.skipif(slurm_version() < (23, 2), reason="rl_enable came with Slurm 23.02")
@pytest.mark.skipif(os.getuid() != 0, reason="needs root to be several users")
def test_nodes_come_and_go_without_complaint_under_the_usual_limit(site: Site) -> None:
    """Of a trainer of bob's, which bob's controller runs by commands: these ask most.

    SlurmUser, which the site's controller runs as, is exempt.
    """
    with (
        slurm_has(site, "SlurmctldParameters=rl_enable"),
        controlled_by_bob(site, "--gateway", "commands") as own,
    ):
        array = submit_personal(site, own, IDLE, "1-4")
        wait_until(lambda: len(own.trainer(array)["nodes"]) == 4, PATIENCE_S)
        site.lab.run("srun", "-N4", "--exclusive", "true")  # alice's
        wait_until(lambda: own.trainer(array)["reclaimed"] == 4, PATIENCE_S)
        wait_until(lambda: len(own.trainer(array)["nodes"]) == 4, PATIENCE_S)
        lines = own.log.read_text().splitlines()
        # On a busy machine slurmctld may be slow to answer by itself. This host's program is
        # built for its own Slurm, and cannot run beside another one.
        usual = (" INFO ", "slurmctld took", "bftrainer-grow is not used")
        assert [line for line in lines if not any(word in line for word in usual)] == []
