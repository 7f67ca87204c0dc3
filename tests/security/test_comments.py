"""What users write where our records stand: by sbatch without the option, or by scontrol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from scripts.labcluster.site import Site
from scripts.labcluster.waiting import wait_until
from tests.security.conftest import HOLDS

pytestmark = [pytest.mark.slurm, pytest.mark.newest, pytest.mark.timeout(1500)]

HOSTILE = [
    "bftrainer:",
    "bftrainer:min=2,max=1",
    "bftrainer:min=1,max=2,weight=1e9",
    "bftrainer:min=1,max=2,weight=1001",
    "bftrainer:min=1,max=99999999999999999999",
    "bftrainer:min=1,max=2,grace=-1",
    "bftrainer:min=1,max=2;reboot",
    "bftrainer:min=1,max=2,$(reboot)=1",
    "bftrainer:min=1,max=2,x='; DROP TABLE stays; --",
    "bftrainer:min=1,max=2,\x1b]0;mine\x07=1",
    "bftrainer:" + "min=1," * 150,
]
NAME = "\x1b[31m<script>%n';--"


@contextmanager
def array_of_bob(site: Site, comment: str, *options: str) -> Iterator[int]:
    """A job array that bob submits without our option, with a comment like a trainer's."""
    common = ("--array=0-1", "--hold", "-N1", "--requeue", "-o", "/dev/null", "--exclusive")
    array = site.lab.sbatch(
        *(*common, f"--comment={comment}", f"--job-name={NAME}", *options),
        script=HOLDS,
        user="bob",
    )
    try:
        yield array
    finally:
        site.end(array)


def arrays(site: Site) -> set[int]:
    return {one["array"] for one in site.controller.status()["trainers"]}


def looks(site: Site) -> None:
    """Wait until the controller has looked at the queue twice: what it would do, it has done."""
    wait = site.submit(HOLDS, "4-4", "--bftrainer=weight=0.1", user="carol")  # gets no node
    wait_until(lambda: wait in arrays(site))
    site.end(wait)
    wait_until(lambda: site.controller.trainer(wait)["state"] in ("cancelled", "unknown"))


def test_hostile_records_are_left_alone_counted_and_logged_once(site: Site, victim: int) -> None:
    lines_before = site.controller.log.read_text().count("is not a valid trainer")
    options = ("--array=0-1", "--hold", "-N1", "-p", "bftrainer", "-o", "/dev/null")
    jobs = [
        site.lab.sbatch(*options, f"--comment={comment}", "-J", NAME, script=HOLDS, user="bob")
        for comment in HOSTILE
    ]
    try:
        wait_until(lambda: len(site.controller.status()["malformed"]) == len(HOSTILE))
        looks(site)
        assert not arrays(site) & set(jobs)
        for job in jobs:
            assert set(site.lab.squeue(job, "%t")) == {"PD"}
        shown = site.run("bftrainer", "status", user="carol").stdout
        assert f"job {jobs[0]} is left alone: " in shown
        assert shown.replace("\n", "").isprintable()
        # One line each time that there are more of them, at the most: not one at each look.
        said = site.controller.log.read_text().count("is not a valid trainer") - lines_before
        assert 1 <= said <= len(HOSTILE)
    finally:
        site.end(*jobs)


def test_a_hostile_name_reaches_no_terminal(site: Site, victim: int) -> None:
    with array_of_bob(site, "bftrainer:min=2,max=2", "-p", "bftrainer") as array:
        wait_until(lambda: array in arrays(site))
        for command in (("status",), ("show", str(array))):
            shown = site.run("bftrainer", *command, user="carol").stdout
            assert shown.replace("\n", "").isprintable()
            assert "<script>" in shown
        listed = site.run("bftrainer", "status", "--json", user="carol").stdout
        assert listed.isascii()
        assert NAME in [one["name"] for one in json.loads(listed)["trainers"]]
        assert not any("\x1b" in line for line in site.controller.log.read_text().splitlines())


def test_a_record_in_another_partition_is_an_ordinary_job(site: Site, victim: int) -> None:
    with array_of_bob(site, "bftrainer:min=1,max=2", "-p", "main") as array:
        looks(site)
        assert array not in arrays(site)
        assert set(site.lab.squeue(array, "%t")) == {"PD"}


def test_elements_moved_to_another_partition_are_no_longer_ours_to_start(
    site: Site, victim: int
) -> None:
    # Until bob has moved one there are no nodes for it: else it might start before the move.
    with array_of_bob(site, "bftrainer:min=3,max=3", "-p", "bftrainer") as array:
        move = ("scontrol", "update", f"JobId={array}_1", "Partition=main")
        site.lab.run(*move, user="bob")
        looks(site)
        smaller = "Comment=bftrainer:min=1,max=2"
        site.lab.run("scontrol", "update", f"JobId={array}", smaller, user="bob")
        wait_until(lambda: len(site.controller.trainer(array)["nodes"]) == 1)
        looks(site)
        assert sorted(site.lab.squeue(array, "%K %t")) == ["0 R", "1 PD"]


def test_what_an_operator_holds_stays_held(site: Site, victim: int) -> None:
    with array_of_bob(site, "bftrainer:min=3,max=3", "-p", "bftrainer") as array:
        site.lab.run("scontrol", "hold", str(array), user="root")
        smaller = "Comment=bftrainer:min=1,max=2"  # only now there are nodes enough for it
        site.lab.run("scontrol", "update", f"JobId={array}", smaller, user="bob")
        wait_until(lambda: site.controller.trainer(array)["state"] == "withheld")
        looks(site)
        reasons = site.lab.squeue(array, "%t %r")
        assert set(reasons) == {"PD JobHeldAdmin"}
        refused = site.lab.run("scontrol", "release", f"{array}_0", user="bob", check=False)
        assert refused.returncode != 0
        site.lab.run("scontrol", "release", str(array), user="root")
        wait_until(lambda: len(site.controller.trainer(array)["nodes"]) == 2)


def test_a_trainer_whose_record_its_owner_breaks_is_left_alone(site: Site, victim: int) -> None:
    with array_of_bob(site, "bftrainer:min=1,max=2", "-p", "bftrainer") as array:
        wait_until(lambda: len(site.controller.trainer(array)["nodes"]) == 2)
        site.lab.run("scontrol", "update", f"JobId={array}", "Comment=bftrainer:x", user="bob")
        wait_until(lambda: len(site.controller.status()["malformed"]) == 1)
        assert array not in arrays(site)
        # Its nodes are ordinary jobs' from now on: others are not put there.
        assert site.controller.status()["pool"]["nodes"] == 2
