"""On a real cluster: trainers that cannot have every node, those that can have none, and those that
a site's job_submit.lua changes, or does not let the controller change.
"""

from __future__ import annotations

import json

import pytest

from scripts.labcluster.site import Site
from scripts.labcluster.waiting import wait_until
from tests.controller.sites import (
    IDLE,
    ordinary,
    shown,
    wait_for_nodes,
    wait_for_size,
)

pytestmark = [pytest.mark.slurm, pytest.mark.newest, pytest.mark.timeout(1500)]


def test_a_constraint_and_its_complement_share_the_cluster(site: Site) -> None:
    red_ones = ("NodeName=n[1-2]", "AvailableFeatures=red", "ActiveFeatures=red")
    site.lab.run("scontrol", "update", *red_ones, user="root")
    red, excluding = site.submit(IDLE, "1-4", "-C", "red"), site.submit(IDLE, "1-4", "-x", "n[1-2]")
    wait_for_nodes(site, red, "n1", "n2")
    wait_for_nodes(site, excluding, "n3", "n4")
    said = "It may use 2 of the pool's 4 nodes"
    wait_until(lambda: said in shown(site, "explain", str(red)))


def test_a_reservation_of_licences_keeps_nobody_from_nodes(site: Site) -> None:
    make = ("scontrol", "create", "reservation", "Reservation=course", "Start=now", "Duration=10")
    licences = ("Licenses=matlab:1", "Flags=LICENSE_ONLY", "Users=root")
    site.lab.run(*make, *licences, user="root")
    wait_for_size(site, site.submit(IDLE, "1-4"), 4)
    site.lab.run("scontrol", "delete", "Reservation=course", user="root")


def test_a_trainer_that_waits_for_another_job_is_never_tried_and_keeps_no_node_from_others(
    site: Site,
) -> None:
    first = ordinary(site, "--hold")
    for failed in ("", "(failed)"):
        array = site.submit(IDLE, "1-4", f"--dependency=afterok:{first}")
        if failed:
            site.lab.run("scancel", str(first), user="bob")
        said = f"it waits for another job (afterok:{first}{failed})"
        wait_until(lambda said=said, array=array: said in shown(site, "show", str(array)))
        other = site.submit(IDLE, "1-4")
        wait_for_size(site, other, 4)
        # Slurm holds what waits for a job that failed as an operator would.
        held = {line.split()[1] for line in site.lab.squeue(array, "%t %r")}
        assert held <= {"JobHeldUser", "JobHeldAdmin"}
        assert f"grow {array}_" not in site.controller.log.read_text()
        site.end(array, other)


# What the site changes.


def named(site: Site, name: str) -> int:
    return site.submit(IDLE, "1-2", f"--job-name={name}")


@pytest.mark.parametrize(
    ("name", "said"),
    [("replaced", "job_submit plugin replaces comments"), ("moved", "it is in partition main")],
)
def test_a_submission_that_the_site_changes_is_named(site: Site, name: str, said: str) -> None:
    array = named(site, name)
    wait_until(lambda: str(array) in site.controller.status()["malformed"])
    assert f"job {array} is not a valid trainer" in site.controller.log.read_text()
    for command in (("status",), ("show", str(array))):
        words = shown(site, *command)
        assert f"job {array} is left alone: " in words
        assert said in words
    assert set(site.lab.squeue(array, "%t %r")) == {"PD JobHeldUser"}


def test_a_site_that_refuses_changes_is_named(site: Site) -> None:
    array = named(site, "locked")
    wait_until(lambda: site.controller.trainer(array).get("why"))
    said = "its slurm_job_modify has to let the controller's account change jobs"
    assert said in site.controller.log.read_text()
    for command in (("status",), ("show", str(array)), ("explain", str(array))):
        assert said in shown(site, *command)
    found = json.loads(site.run("bftrainer", "doctor", "--json", check=False).stdout)["findings"]
    (finding,) = [one for one in found if one["check"] == "changes of jobs"]
    assert finding["level"] == "change"
    assert said in finding["found"]


@pytest.mark.parametrize(
    ("name", "said"), [("shared", "it has lost --exclusive"), ("licensed", "licences (home)")]
)
def test_a_trainer_to_which_the_site_adds_what_keeps_it_from_nodes_waits_and_says_so(
    site: Site, name: str, said: str
) -> None:
    array = named(site, name)
    wait_until(lambda: said in (site.controller.trainer(array).get("why") or ""))
    assert "the site's job_submit plugin did that" in shown(site, "status")
