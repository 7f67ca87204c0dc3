"""On a real cluster: a queue that backfill does not come to the end of, where elements are."""

from __future__ import annotations

import json
import re

import pytest

from scripts.labcluster.lab import ADMIN
from scripts.labcluster.site import Site
from scripts.labcluster.waiting import wait_until
from tests.controller.sites import IDLE, runs, slurm_has

pytestmark = [pytest.mark.slurm, pytest.mark.newest, pytest.mark.timeout(600)]

MOST, WAITING = 50, 120
PASSES = "SchedulerParameters=bf_interval=5"


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
