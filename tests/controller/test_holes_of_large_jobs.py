"""On a real cluster: a user's own controller trains in the hole that a large job leaves."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from scripts.labcluster.controller import Controller
from scripts.labcluster.site import Site, prepared_site
from scripts.labcluster.waiting import wait_until

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.newest,
    pytest.mark.torch,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(os.getuid() != 0, reason="needs root to be two users"),
]
SCRIPT = "#!/bin/bash\nsrun sleep 1000\n"
ORDINARY = "#!/bin/sh\nexec sleep 1000\n"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """At Slurm's own interval of backfill."""
    with prepared_site(nodes=4, bf_interval=30) as made:
        yield made


@pytest.fixture(scope="module")
def own(site: Site) -> Iterator[Controller]:
    controller = site.own_controller("bob")
    with controller.running():
        yield controller


@contextmanager
def trainer(site: Site, own: Controller, *options: str) -> Iterator[int]:
    script = site.folder("bob") / "train.sh"
    script.write_text(SCRIPT)
    submit = ("bftrainer", "submit", "--personal", "--state", own.state, "--json", "-N1-4")
    printed = site.run(
        *submit, "-p", "bftrainer", "--output=/dev/null", *options, script, user="bob"
    )
    array = int(json.loads(printed.stdout)["array"])
    try:
        yield array
    finally:
        site.end(array)


def pieces(site: Site, array: int) -> dict[str, tuple[int, int]]:
    """When each element started, and when its limit ends it, by node."""
    command = ("squeue", "-h", "-r", "-t", "R", "-j", str(array), "-o", "%N %S %e")
    listed = site.run(*command, env={"SLURM_TIME_FORMAT": "%s"}, check=False).stdout
    rows = map(str.split, listed.splitlines())
    return {node: (int(start), int(end)) for node, start, end in rows}


def forecast(site: Site, job: int) -> int | None:
    """When Slurm expects a job to start."""
    (shown,) = site.run(
        "squeue", "-h", "-j", str(job), "-o", "%S", env={"SLURM_TIME_FORMAT": "%s"}
    ).stdout.split()
    return int(shown) if shown.isdigit() else None


@pytest.mark.parametrize(
    "time_limit",
    [
        pytest.param((), id="no limit asked"),
        pytest.param(("--time=1-0",), id="a day", marks=(pytest.mark.once, pytest.mark.nightly)),
    ],
)
def test_after_a_reclaim_pieces_are_as_long_as_the_hole(
    site: Site, own: Controller, time_limit: tuple[str, ...]
) -> None:
    with trainer(site, own, *time_limit) as array:
        wait_until(lambda: len(pieces(site, array)) == 4)
        common = ("-p", "main", "--exclusive", "-o", "/dev/null")
        small = site.lab.sbatch(*common, "-w", "n1", "-t", "25", script=ORDINARY)
        # Slurm's forecast for the large one begins with its end.
        wait_until(lambda: site.lab.squeue(small, "%t") == ["R"])
        large = site.lab.sbatch(*common, "-N4", "-t", "10", script=ORDINARY)
        site.lab.run("srun", "-p", "main", "-w", "n[2-4]", "-N3", "--exclusive", "-t", "1", "true")
        wait_until(lambda: forecast(site, large))
        before_s = forecast(site, large)
        wait_until(lambda: pieces(site, array).keys() == {"n2", "n3", "n4"}, 400)
        found = pieces(site, array).values()
        assert min(end_s - start_s for start_s, end_s in found) >= 600
        assert max(end_s for _, end_s in found) <= (before_s or 0) + 60
        assert forecast(site, large) == before_s
        site.lab.run("scancel", str(small), str(large), user="root")
