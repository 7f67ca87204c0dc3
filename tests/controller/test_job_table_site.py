"""On a real cluster whose slurmctld holds few jobs: trainers leave room for everybody's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.labcluster.site import QUICK, Site, started_site
from scripts.labcluster.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.timeout(600)]
IDLE = "#!/bin/bash\nsrun sleep 1000\n"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Trainers may hold 20 of 60 jobs."""
    settings = {**QUICK, "job_table_share": 1 / 3}
    with started_site(nodes=2, settings=settings, conf=["MaxJobCount=60"]) as running:
        yield running


def large(site: Site, least: int, most: int) -> int:
    """A trainer of more elements than the plugin lets through."""
    words = ("-N1", "-n1", "-p", "bftrainer", "--hold", "--requeue", "--exclusive")
    record = f"--comment=bftrainer:min={least},max={most}"
    return site.lab.sbatch(*words, f"--array=0-{most - 1}", "-o", "/dev/null", record, script=IDLE)


def left(site: Site, array: int) -> list[int]:
    """The tasks of a trainer that run or wait."""
    listed = site.run("squeue", "-h", "-r", "-j", str(array), "-o", "%K", check=False).stdout
    return sorted(map(int, listed.split()))


def test_together_trainers_hold_no_more_than_their_share(site: Site) -> None:
    first = large(site, 1, 16)
    wait_until(lambda: len(site.controller.trainer(first)["nodes"]) == 2)
    second = large(site, 1, 18)
    wait_until(lambda: left(site, first) == left(site, second) == list(range(10)))
    wait_until(lambda: "10 of its 16 elements" in str(site.controller.trainer(first)["why"]))
    third = large(site, 20, 20)
    wait_until(lambda: left(site, third) == [])
    shown = site.run("bftrainer", "show", str(third)).stdout
    assert "trainers may hold 20 of slurmctld's 60 jobs (job_table_share)" in " ".join(
        shown.split()
    )
    assert len(left(site, first)) == len(left(site, second)) == 10
    site.end(first, second)


def test_the_plugin_refuses_a_trainer_of_more_than_a_tenth_of_it(site: Site) -> None:
    command = ("sbatch", "--bftrainer", "-N1-7", "--wrap", "true")
    assert "write at most -N 1-6" in site.run(*command, check=False).stderr
