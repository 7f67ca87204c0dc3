"""On a real cluster: a queue that backfill does not come to the end of, where elements are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from scripts.labcluster.lab import ADMIN
from scripts.labcluster.site import Site, started_site
from scripts.labcluster.waiting import wait_until
from tests.controller.test_shared_site import IDLE

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.newest,
    pytest.mark.usefixtures("nothing_is_left"),
    pytest.mark.timeout(600),
]

MOST, WAITING = 50, 120
QUICK = "SchedulerParameters=bf_interval=5"
CONF = f"{QUICK},bf_max_job_test={MOST}"


@pytest.fixture
def site() -> Iterator[Site]:
    """Three busy nodes and an idle one; all other jobs wait for all four."""
    with started_site(nodes=4, conf=(CONF,)) as made, made.taken(3, "--time=60"):
        words = "-p main -N4 --exclusive --time=10 -o /dev/null --wrap=true"
        submit = f"for n in $(seq {WAITING}); do sbatch -Q {words} >/dev/null; done"
        made.run("bash", "-c", submit)
        yield made


def test_a_queue_that_stops_passes_is_told_and_doctors_lines_start_trainers(site: Site) -> None:
    array = site.submit(IDLE, "1-1")

    def told() -> str:
        return "".join(site.controller.status()["controller"]["slurm"])

    wait_until(lambda: " tries with " in told(), 60)
    explained = site.run("bftrainer", "explain", str(array)).stdout
    assert re.search(r"stopped\s+after\s+\d+\s+tries", explained)
    assert site.lab.squeue(array, "%t").count("R") == 0
    assert not site.controller.status()["barred"]

    done = site.run("bftrainer", "doctor", "--json", user=ADMIN, check=False)
    (finding,) = (
        one for one in json.loads(done.stdout)["findings"] if one["check"] == "bf_max_job_test"
    )
    assert finding["level"] == "change"
    options = [change["line"].partition("=...,")[2] for change in finding["changes"]]
    settings = site.lab.dir / "slurm.conf"
    text = settings.read_text()
    assert CONF in text
    settings.write_text(text.replace(CONF, ",".join([QUICK, *options])))
    site.run("scontrol", "reconfigure", user=ADMIN)
    wait_until(lambda: site.lab.squeue(array, "%t").count("R") == 1, 60)
    wait_until(lambda: not site.controller.status()["stopped_pass"])
