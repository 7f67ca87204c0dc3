"""On a real cluster at Slurm's own kind of interval: jobs that backfill starts find idle nodes.

An Epilog keeps each node for some seconds, as at many sites, so that trainers have to leave early.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.labcluster.lab import ADMIN
from scripts.labcluster.site import Site
from scripts.labcluster.waiting import wait_until
from tests.controller.sites import (
    IDLE,
    controlled_with,
    ordinary,
    runs,
    slurm_has,
    start,
    wait_for_size,
)

pytestmark = [pytest.mark.slurm, pytest.mark.newest, pytest.mark.timeout(1500)]
INTERVAL_S = 20
EPILOG_S = 5


@pytest.fixture(autouse=True)
def epilog(site: Site, tmp_path: Path) -> Iterator[None]:
    """The controller has its own settings."""
    program = tmp_path / "epilog"
    program.write_text(f"#!/bin/sh\nexec sleep {EPILOG_S}\n")
    program.chmod(0o755)
    passes = f"SchedulerParameters=bf_interval={INTERVAL_S},batch_sched_delay=0"
    with slurm_has(site, f"Epilog={program}", passes), controlled_with(site, {}):
        yield


def last_pass_s(site: Site) -> int:
    """When the last pass of backfill began (Unix seconds), 0: there was none."""
    found = re.search(r"Last cycle when: .*\((\d+)\)", site.run("sdiag", user=ADMIN).stdout)
    return 0 if found is None else int(found[1])


def wait_for_a_pass(site: Site) -> None:
    """Wait until one begins; then the next one is nearly an interval away."""
    before_s = last_pass_s(site)
    wait_until(lambda: last_pass_s(site) > before_s)


def times(site: Site, job: int) -> tuple[int, int]:
    """When a job was submitted, and when it started (Unix seconds)."""
    (line,) = site.run(
        *("squeue", "-h", "-j", str(job), "-o", "%V %S"), env={"SLURM_TIME_FORMAT": "%s"}
    ).stdout.splitlines()
    submitted, started = line.split()
    return int(submitted), int(started)


def test_a_job_behind_a_large_one_finds_a_node_in_the_next_pass_and_preempts_nobody(
    site: Site,
) -> None:
    trainer = site.submit(IDLE, "1-2")
    wait_for_size(site, trainer, 2)
    start(site, "-N1", "--exclusive", "-t30")  # what it preempts shows how long nodes take to empty
    wait_for_size(site, trainer, 1)
    large = ordinary(site, "-N2", "--exclusive", "-t30")  # only backfill passes it by
    wait_for_a_pass(site)
    time.sleep(EPILOG_S)  # so that no pass may be under way: then trainers would leave at once
    before = site.controller.trainer(trainer)
    submitted_s, started_s = times(site, start(site, "-N1", "-t5", "--exclusive"))
    assert started_s - submitted_s < 1.5 * INTERVAL_S  # in the one after that it were more
    wait_until(lambda: site.controller.trainer(trainer)["shrank"] > before["shrank"])
    assert site.controller.trainer(trainer)["reclaimed"] == before["reclaimed"]
    assert not runs(site, large)
