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

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.newest,
    pytest.mark.usefixtures("nothing_is_left"),
    pytest.mark.timeout(1500),
]
IDLE = "#!/bin/bash\nsrun sleep 1000\n"
SLEEPS = "#!/bin/bash\nexec sleep 1000\n"
INTERVAL_S = 20
EPILOG_S = 5


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Nodes of 8 GPUs, 16 cores and 8000 MB, with the controller's own settings."""
    epilog = tmp_path_factory.mktemp("site") / "epilog"
    epilog.write_text(f"#!/bin/sh\nexec sleep {EPILOG_S}\n")
    epilog.chmod(0o755)
    conf = (f"Epilog={epilog}",)
    options = {"gpus": 8, "share": True, "bf_interval": INTERVAL_S, "conf": conf}
    with started_site(nodes=4, settings={}, **options) as running:
        yield running


def ordinary(site: Site, *options: str) -> int:
    return site.lab.sbatch("-p", "main", "-o", "/dev/null", *options, script=SLEEPS, user="bob")


def runs(site: Site, job: int) -> bool:
    return site.lab.squeue(job, "%T") == ["RUNNING"]


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


def assert_it_finds_room(site: Site, trainer: int, large: int, *small: str) -> None:
    """A small job starts in the next pass and preempts nobody; a large one waits."""
    wait_for_a_pass(site)
    time.sleep(EPILOG_S)  # so that no pass may be under way: then trainers would leave at once
    reclaimed = site.controller.trainer(trainer)["reclaimed"]
    job = ordinary(site, "-N1", "-t5", *small)
    wait_until(lambda: runs(site, job))
    submitted_s, started_s = times(site, job)
    assert started_s - submitted_s < 1.5 * INTERVAL_S  # in the one after that it were more
    # How many leave is for tests of the decision: on a busy machine it was two, once.
    wait_until(lambda: site.controller.trainer(trainer)["shrank"] >= 1)
    assert site.controller.trainer(trainer)["reclaimed"] == reclaimed
    assert site.lab.squeue(large, "%T") == ["PENDING"]


def test_a_job_behind_a_large_one_finds_a_node(site: Site) -> None:
    trainer = site.submit(IDLE, "1-4")
    wait_until(lambda: len(site.lab.running(trainer)) == 4)
    first = ordinary(site, "-N1", "--exclusive", "-t30")
    wait_until(lambda: runs(site, first))
    large = ordinary(site, "-N4", "--exclusive", "-t30")
    wait_until(lambda: len(site.lab.running(trainer)) == 3)
    assert_it_finds_room(site, trainer, large, "--exclusive")


def test_a_job_that_finds_cores_but_no_memory_finds_memory(site: Site) -> None:
    first = ordinary(site, "-N1", "-w", "n1", "-c1", "-t30")
    wait_until(lambda: runs(site, first))
    trainer = site.submit(IDLE, "1-4", "--gpus-per-node=2", "--mem=7000")
    wait_until(lambda: len(site.lab.running(trainer)) == 4)
    large = ordinary(site, "-N4", "--exclusive", "-t30")  # only backfill passes it by
    assert_it_finds_room(site, trainer, large, "-c1", "--mem=2000")
