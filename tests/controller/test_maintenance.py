"""On a real cluster: maintenance is kept clear, at a site and where users run their own; and these
train in the hole that a large job leaves.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from scripts.labcluster.controller import Controller
from scripts.labcluster.site import Site, prepared_site, started_site
from scripts.labcluster.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.newest, pytest.mark.timeout(1500)]
IDLE = "#!/bin/bash\nsrun sleep 1000\n"
HOUR_S = 3600
CLEAR_S = 60
Submit = Callable[..., int]
ORDINARY = "#!/bin/sh\nexec sleep 1000\n"


@pytest.fixture(scope="module")
def at_site() -> Iterator[tuple[Site, Submit]]:
    with started_site(nodes=4) as site:
        yield site, site.submit


@pytest.fixture(scope="module")
def personal() -> Iterator[tuple[Site, Submit]]:
    if os.getuid() != 0:
        pytest.skip("needs root to be two users")
    with prepared_site(nodes=4, bf_interval=10) as site:
        own = site.own_controller("bob")
        with own.running():
            yield site, lambda script, nodes, *options: by_bob(site, own, script, nodes, *options)


# What a user alone may ask of each Slurm is in test_rate_limit and in the hole of a large job.
@pytest.fixture(params=["at_site", pytest.param("personal", marks=pytest.mark.once)])
def submit(request: pytest.FixtureRequest) -> tuple[Site, Submit]:
    """A cluster, and how its users submit trainers: to the site's controller, or to their own."""
    found: tuple[Site, Submit] = request.getfixturevalue(request.param)
    return found


def by_bob(site: Site, own: Controller, script: str, nodes: str, *options: str) -> int:
    path = site.folder("bob") / "train.sh"
    path.write_text(script)
    command = ("bftrainer", "submit", "--personal", "--state", str(own.state), "--json")
    words = ("-p", "bftrainer", "-N", nodes, "--output=/dev/null", *options, str(path))
    return int(json.loads(site.run(*command, *words, user="bob").stdout)["array"])


def ends(site: Site, array: int) -> dict[str, float]:
    """When Slurm's limits end the elements that run, by node."""
    listed = site.run(
        "squeue", "-h", "-r", "-t", "R", "-j", str(array), "-o", "%N %e",
        env={"SLURM_TIME_FORMAT": "%s"}, check=False,
    ).stdout  # fmt: skip
    return {node: float(end) for node, end in map(str.split, listed.splitlines())}


def train_on_all(site: Site, train: Submit, *options: str) -> int:
    """Return a trainer with four nodes and limits of an hour."""
    array = train(IDLE, "1-4", *options)

    def settled() -> bool:
        found = ends(site, array).values()
        return len(found) == 4 and min(found) > time.time() + 0.75 * HOUR_S

    wait_until(settled)
    return array


@contextmanager
def reservation(site: Site, start: float | str, nodes: str, flags: str = "") -> Iterator[None]:
    """One that an admin makes without a thought of trainers; Slurm may refuse it."""
    begin = start if isinstance(start, str) else f"uts{start:.0f}"
    make = ("scontrol", "create", "reservation", "Reservation=course", f"Start={begin}")
    words = ("Duration=60", f"Nodes={nodes}", "Users=root", *([f"Flags={flags}"] if flags else []))
    site.lab.run(*make, *words, user="root")
    try:
        yield
    finally:
        site.lab.run("scontrol", "delete", "Reservation=course", user="root")


@pytest.mark.parametrize(
    "time_limit",
    [
        pytest.param((), id="no limit asked"),
        pytest.param(("--time=1-0",), id="a day", marks=pytest.mark.once),
    ],
)
def test_reservations_an_hour_ahead_are_made_as_if_there_were_no_trainers(
    submit: tuple[Site, Submit], time_limit: tuple[str, ...]
) -> None:
    site, train = submit
    array = train_on_all(site, train, *time_limit)
    for flags in ("", "MAINT"):
        with reservation(site, "now+61minutes", "ALL", flags):
            assert len(ends(site, array)) == 4
    site.end(array)


def test_limits_end_before_a_reservation_that_was_made_over_them(
    submit: tuple[Site, Submit],
) -> None:
    site, train = submit
    array = train_on_all(site, train)

    def end_of(node: str) -> float:
        return ends(site, array).get(node, float("inf"))

    start_s = time.time() + HOUR_S / 2
    with reservation(site, start_s, "n[1-2]", "MAINT,IGNORE_JOBS"):
        wait_until(lambda: all(end_of(node) < start_s for node in ("n1", "n2")))
        later = ends(site, array)
        assert later.keys() == {"n1", "n2", "n3", "n4"}
        assert min(later["n3"], later["n4"]) > start_s
    site.end(array)


def test_elements_leave_in_time_and_come_back(submit: tuple[Site, Submit]) -> None:
    site, train = submit
    array = train(IDLE, "1-4")
    wait_until(lambda: len(ends(site, array)) == 4)
    start_s = time.time() + CLEAR_S + 20
    with reservation(site, start_s, "n[1-2]", "MAINT,IGNORE_JOBS"):
        wait_until(lambda: ends(site, array).keys() == {"n3", "n4"})
        assert time.time() < start_s
    wait_until(lambda: len(ends(site, array)) == 4)
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


def test_after_a_reclaim_pieces_are_as_long_as_the_hole(personal: tuple[Site, Submit]) -> None:
    site, train = personal
    array = train(IDLE, "1-4")
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
    site.end(array, small, large)
