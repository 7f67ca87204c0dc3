"""On a real cluster: maintenance is kept clear, at a site and where users run their own; and these
train in the hole that a large job leaves.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from scripts.labcluster.site import Site
from scripts.labcluster.waiting import wait_until
from tests.controller.sites import IDLE, controlled_by_bob, ordinary, start, submit_personal

pytestmark = [pytest.mark.slurm, pytest.mark.newest, pytest.mark.timeout(1500)]
HOUR_S = 3600
CLEAR_S = 60
ALL = {"n1", "n2", "n3", "n4"}
IN_S = {"SLURM_TIME_FORMAT": "%s"}
Submit = Callable[..., int]
personal = pytest.mark.skipif(os.getuid() != 0, reason="needs root to be two users")


@pytest.fixture
def by_bob(site: Site) -> Iterator[Submit]:
    """Submits trainers to bob's own controller, which works in place of the site's."""
    with controlled_by_bob(site) as own:
        yield partial(submit_personal, site, own)


@pytest.fixture(params=["site", pytest.param("personal", marks=[pytest.mark.once, personal])])
def submit(site: Site, request: pytest.FixtureRequest) -> Submit:
    """How users submit trainers: to the site's controller, or to their own."""
    found: Submit = request.getfixturevalue("by_bob") if request.param != "site" else site.submit
    return found


def pieces(site: Site, array: int) -> dict[str, tuple[int, int]]:
    """When each element started, and when its limit ends it, by node."""
    command = ("squeue", "-h", "-r", "-t", "R", "-j", str(array), "-o", "%N %S %e")
    rows = map(str.split, site.run(*command, env=IN_S, check=False).stdout.splitlines())
    return {node: (int(start), int(end)) for node, start, end in rows}


def ends(site: Site, array: int) -> dict[str, int]:
    """When Slurm's limits end the elements that run, by node."""
    return {node: end_s for node, (_, end_s) in pieces(site, array).items()}


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


def test_reservations_are_made_as_if_there_were_no_trainers_and_limits_end_before_one_over_them(
    site: Site,
) -> None:
    array = site.submit(IDLE, "1-4")

    def long() -> bool:
        found = ends(site, array).values()
        return len(found) == 4 and min(found) > time.time() + 0.75 * HOUR_S

    wait_until(long)
    for flags in ("", "MAINT"):
        with reservation(site, "now+61minutes", "ALL", flags):
            assert ends(site, array).keys() == ALL
    start_s = time.time() + HOUR_S / 2

    def in_time() -> bool:
        found = ends(site, array)
        return {node for node in found if found[node] < start_s} == {"n1", "n2"}

    with reservation(site, start_s, "n[1-2]", "MAINT,IGNORE_JOBS"):
        wait_until(in_time)
        assert ends(site, array).keys() == ALL


def test_elements_leave_in_time_and_come_back(site: Site, submit: Submit) -> None:
    array = submit(IDLE, "1-4")
    wait_until(lambda: ends(site, array).keys() == ALL)
    start_s = time.time() + CLEAR_S + 20
    with reservation(site, start_s, "n[1-2]", "MAINT,IGNORE_JOBS"):
        wait_until(lambda: ends(site, array).keys() == {"n3", "n4"})
        assert time.time() < start_s
    wait_until(lambda: ends(site, array).keys() == ALL)


def forecast(site: Site, job: int) -> int | None:
    """When Slurm expects a job to start."""
    (shown,) = site.run("squeue", "-h", "-j", str(job), "-o", "%S", env=IN_S).stdout.split()
    return int(shown) if shown.isdigit() else None


@personal
def test_after_a_reclaim_pieces_are_as_long_as_the_hole(site: Site, by_bob: Submit) -> None:
    array = by_bob(IDLE, "1-4")
    wait_until(lambda: pieces(site, array).keys() == ALL)
    # Slurm's forecast for the large one begins with the end of the small one.
    start(site, "--exclusive", "-w", "n1", "-t", "25")
    large = ordinary(site, "--exclusive", "-N4", "-t", "10")
    site.lab.run("srun", "-p", "main", "-w", "n[2-4]", "-N3", "--exclusive", "-t", "1", "true")
    wait_until(lambda: forecast(site, large))
    before_s = forecast(site, large)
    wait_until(lambda: pieces(site, array).keys() == {"n2", "n3", "n4"}, 400)
    found = pieces(site, array).values()
    assert min(end_s - start_s for start_s, end_s in found) >= 600
    assert max(end_s for _, end_s in found) <= (before_s or 0) + 60
    assert forecast(site, large) == before_s
