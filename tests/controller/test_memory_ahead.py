"""On a real cluster: elements leave ahead of a pass for a job that lacks only memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.labcluster.site import Site, started_site
from scripts.labcluster.waiting import wait_until
from tests.controller.test_ahead_of_passes import INTERVAL_S, SLEEPS, times, wait_for_a_pass
from tests.controller.test_shared_site import IDLE, has, running

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.newest,
    pytest.mark.usefixtures("nothing_is_left"),
    pytest.mark.timeout(1500),
]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Nodes of 8 GPUs, 16 cores and 8000 MB, with the controller's own settings."""
    with started_site(nodes=2, gpus=8, share=True, settings={}, bf_interval=INTERVAL_S) as made:
        yield made


def ordinary(site: Site, *options: str) -> int:
    return site.lab.sbatch("-o", "/dev/null", *options, script=SLEEPS, user="bob")


def test_a_job_that_finds_cores_but_no_memory_starts_in_the_first_pass_and_preempts_nobody(
    site: Site,
) -> None:
    first = ordinary(site, "-N1", "-w", "n1", "-c1", "-t30")
    wait_until(lambda: running(site, first))
    array = site.submit(IDLE, "1-2", "--gpus-per-node=2", "--mem=7000")
    assert has(site, array, "n1", "n2")
    large = ordinary(site, "-N2", "--exclusive", "-t30")  # only backfill passes it by
    wait_for_a_pass(site)
    small = ordinary(site, "-N1", "-c1", "--mem=2000", "-t5")
    wait_until(lambda: running(site, small))
    submitted_s, started_s = times(site, small)
    assert started_s - submitted_s < 1.5 * INTERVAL_S  # in the one after that it were more
    # How many leave is for tests of the decision: on a busy machine it was two, once.
    wait_until(lambda: site.controller.trainer(array)["shrank"] >= 1)
    assert site.controller.trainer(array)["reclaimed"] == 0
    assert site.lab.squeue(large, "%T") == ["PENDING"]
