"""On a real cluster at Slurm's own kind of interval: jobs that backfill starts find idle nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from scripts.labcluster.site import Site, started_site
from scripts.labcluster.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.timeout(600)]
SLEEPS = "#!/bin/bash\nexec sleep 1000\n"
INTERVAL_S = 20


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """With the controller's own settings."""
    with started_site(nodes=4, settings={}, bf_interval=INTERVAL_S) as running:
        yield running


def ordinary(site: Site, *options: str) -> int:
    common = ("-p", "main", "--exclusive", "-o", "/dev/null")
    return site.lab.sbatch(*common, *options, script=SLEEPS, user="bob")


def times(site: Site, job: int) -> tuple[int, int]:
    """When a job was submitted, and when it started (Unix seconds)."""
    (line,) = site.run(
        *("squeue", "-h", "-j", str(job), "-o", "%V %S"), env={"SLURM_TIME_FORMAT": "%s"}
    ).stdout.splitlines()
    submitted, started = line.split()
    return int(submitted), int(started)


def test_a_job_behind_a_large_one_starts_in_the_first_pass_and_preempts_nobody(site: Site) -> None:
    trainer = site.submit("#!/bin/bash\nsrun sleep 1000\n", "1-4", "--output=/dev/null")
    wait_until(lambda: len(site.lab.running(trainer)) == 4)
    running = ordinary(site, "-N1", "-t30")
    large = ordinary(site, "-N4", "-t30")
    wait_until(lambda: site.lab.squeue(running, "%T") == ["RUNNING"])
    wait_until(lambda: len(site.lab.running(trainer)) == 3)
    time.sleep(2.5 * INTERVAL_S)  # so that a pass has been seen: then the next ones are known
    small = ordinary(site, "-N1", "-t5")
    wait_until(lambda: site.lab.squeue(small, "%T") == ["RUNNING"])
    submitted_s, started_s = times(site, small)
    assert started_s - submitted_s <= INTERVAL_S + 3
    wait_until(lambda: site.controller.trainer(trainer)["shrank"] == 1)
    assert site.controller.trainer(trainer)["reclaimed"] == 1  # for the first job
    assert site.lab.squeue(large, "%T") == ["PENDING"]
    site.lab.run("scancel", str(running), str(large), str(small), user="root")
    site.end(trainer)
