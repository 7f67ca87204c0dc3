"""State is lost while the controller is away: slurmctld's, or the controller's and the keeper's."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.labcluster import cluster as labs
from scripts.labcluster.lab import Lab
from scripts.labcluster.processes import end, send
from scripts.labcluster.site import QUICK, Site, started_site
from scripts.labcluster.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.newest, pytest.mark.torch, pytest.mark.timeout(1500)]


def lose_state(lab: Lab) -> None:
    """End slurmctld, and start it without its saved state: with -c alone it keeps the last id."""
    found = labs.find(Path(lab.dir))
    assert found is not None
    slurmctld = found.daemons["slurmctld"]
    send(slurmctld, signal.SIGKILL)
    end([slurmctld])
    for saved in (lab.dir / "state").glob("job_state*"):
        saved.unlink()
    found.start_slurmctld("-c")
    wait_until(lambda: lab.run("scontrol", "ping", check=False).returncode == 0)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with started_site(nodes=1, settings={**QUICK, "max_failures": 1}) as running:
        yield running


def test_a_new_trainer_under_the_id_of_one_that_was_given_up_is_run(site: Site) -> None:
    """It comes first on this site: slurmctld counts from the first id again."""
    failing = site.submit("#!/bin/sh\nexit 3\n", "1-1")
    wait_until(lambda: site.controller.trainer(failing)["state"] == "given up", 500)
    site.controller.stop()
    stopped_s = time.time()
    lose_state(site.lab)
    wait_until(lambda: time.time() > stopped_s + 1)  # Slurm's times are whole seconds
    array = site.submit("#!/bin/sh\nsleep 1000\n", "1-1")
    assert array == failing
    site.controller.start()
    wait_until(lambda: len(site.controller.trainer(array)["nodes"]) == 1)
    shown = site.controller.trainer(array)
    assert (shown["why"], shown["failures"], shown["grew"]) == (None, 0, 1)
    site.end(array)
