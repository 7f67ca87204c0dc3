"""On a real cluster at Slurm's own kind of interval: jobs that backfill starts find idle nodes.

An Epilog keeps each node for some seconds, as at many sites, so that trainers have to leave early.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from scripts.labcluster.lab import ADMIN
from scripts.labcluster.site import Site, started_site
from scripts.labcluster.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.newest, pytest.mark.torch, pytest.mark.timeout(1500)]
SLEEPS = "#!/bin/bash\nexec sleep 1000\n"
INTERVAL_S = 30
EPILOG_S = 5


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """With the controller's own settings."""
    epilog = tmp_path_factory.mktemp("site") / "epilog"
    epilog.write_text(f"#!/bin/sh\nexec sleep {EPILOG_S}\n")
    epilog.chmod(0o755)
    conf = (f"Epilog={epilog}",)
    with started_site(nodes=4, settings={}, bf_interval=INTERVAL_S, conf=conf) as running:
        yield running


def ordinary(site: Site, *options: str) -> int:
    common = ("-p", "main", "--exclusive", "-o", "/dev/null")
    return site.lab.sbatch(*common, *options, script=SLEEPS, user="bob")


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


def test_a_job_behind_a_large_one_starts_in_the_first_pass_and_preempts_nobody(site: Site) -> None:
    trainer = site.submit("#!/bin/bash\nsrun sleep 1000\n", "1-4", "--output=/dev/null")
    wait_until(lambda: len(site.lab.running(trainer)) == 4)
    running = ordinary(site, "-N1", "-t30")
    wait_until(lambda: site.lab.squeue(running, "%T") == ["RUNNING"])
    large = ordinary(site, "-N4", "-t30")
    wait_until(lambda: len(site.lab.running(trainer)) == 3)
    wait_for_a_pass(site)
    time.sleep(EPILOG_S)  # so that no pass may be under way: then trainers would leave at once
    small = ordinary(site, "-N1", "-t5")
    wait_until(lambda: site.lab.squeue(small, "%T") == ["RUNNING"])
    submitted_s, started_s = times(site, small)
    assert started_s - submitted_s < 1.5 * INTERVAL_S  # in the one after that it were more
    wait_until(lambda: site.controller.trainer(trainer)["shrank"] == 1)
    assert site.controller.trainer(trainer)["reclaimed"] == 1  # for the first job
    assert site.lab.squeue(large, "%T") == ["PENDING"]
    site.lab.run("scancel", str(running), str(large), str(small), user="root")
    site.end(trainer)
