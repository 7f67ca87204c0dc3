"""On a real cluster: trainers that cannot have every node, and those that can have none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.labcluster.site import Site, started_site
from scripts.labcluster.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.newest, pytest.mark.torch, pytest.mark.timeout(1500)]
IDLE = "#!/bin/bash\nsrun sleep 1000\n"
RED = {"n1", "n2"}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with started_site(nodes=4, conf=["Licenses=matlab:2", "GresTypes=gpu"]) as running:
        for node in sorted(RED):
            has = ("AvailableFeatures=red", "ActiveFeatures=red", "Gres=gpu:a100:2")
            running.lab.run("scontrol", "update", f"NodeName={node}", *has, user="root")
        yield running


def nodes_of(site: Site, array: int) -> set[str]:
    return set(site.controller.trainer(array)["nodes"])


def says(site: Site, array: int) -> str:
    """What 'bftrainer show' says of its state."""
    shown = site.run("bftrainer", "show", str(array), check=False).stdout
    return "".join(line for line in str(shown).splitlines() if line.startswith("state"))


def assert_never_tried(site: Site, array: int) -> None:
    """Others have the nodes meanwhile, and no element of it was ever let go."""
    other = site.submit(IDLE, "1-4")
    wait_until(lambda: len(nodes_of(site, other)) == 4)
    # Slurm holds what waits for a job that failed as an operator would.
    held = {line.split()[1] for line in site.lab.squeue(array, "%t %r")}
    assert held <= {"JobHeldUser", "JobHeldAdmin"}
    assert f"grow {array}_" not in site.controller.log.read_text()
    site.end(array, other)


def test_a_constraint_and_its_complement_share_the_cluster(site: Site) -> None:
    red, excluding = site.submit(IDLE, "1-4", "-C", "red"), site.submit(IDLE, "1-4", "-x", "n[1-2]")
    wait_until(lambda: len(nodes_of(site, red)) == len(nodes_of(site, excluding)) == 2)
    assert nodes_of(site, red) == RED
    assert nodes_of(site, excluding) == {"n3", "n4"}
    site.end(red, excluding)


def test_nodes_too_small_are_never_tried(site: Site) -> None:
    array = site.submit(IDLE, "3-4", "--gpus-per-node=a100:1")
    wait_until(lambda: "2 of 4 nodes fit" in says(site, array))
    assert_never_tried(site, array)


def test_nodes_that_have_what_is_asked_for_are_used_and_explain_counts_them(site: Site) -> None:
    array = site.submit(IDLE, "1-4", "--gres=gpu:1")
    wait_until(lambda: nodes_of(site, array) == RED)

    def explained() -> str:
        return " ".join(site.run("bftrainer", "explain", str(array)).stdout.split())

    wait_until(lambda: "It may use 2 of the pool's 4 nodes" in explained())
    site.end(array)


def test_a_reservation_of_licences_keeps_nobody_from_nodes(site: Site) -> None:
    make = ("scontrol", "create", "reservation", "Reservation=course", "Start=now", "Duration=10")
    licences = ("Licenses=matlab:1", "Flags=LICENSE_ONLY", "Users=root")
    site.lab.run(*make, *licences, user="root")
    array = site.submit(IDLE, "1-4")
    wait_until(lambda: len(nodes_of(site, array)) == 4)
    site.end(array)
    site.lab.run("scontrol", "delete", "Reservation=course", user="root")


def test_a_trainer_that_waits_for_another_job_keeps_no_node_from_others(site: Site) -> None:
    first = site.lab.sbatch("--hold", "-o", "/dev/null", script="#!/bin/sh\n")
    array = site.submit(IDLE, "1-4", f"--dependency=afterok:{first}")
    wait_until(lambda: f"it waits for another job (afterok:{first})" in says(site, array))
    assert_never_tried(site, array)
    array = site.submit(IDLE, "1-4", f"--dependency=afterok:{first}")
    site.lab.run("scancel", str(first))
    wait_until(lambda: f"it waits for another job (afterok:{first}(failed))" in says(site, array))
    assert_never_tried(site, array)
