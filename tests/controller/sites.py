"""What tests on a site of a real Slurm share: the two sites that most of them are on, and words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from scripts.labcluster.controller import Controller
from scripts.labcluster.lab import ADMIN
from scripts.labcluster.site import QUICK, Site
from scripts.labcluster.waiting import wait_until

IDLE = "#!/bin/bash\nsrun sleep 1000\n"  # a trainer that holds its nodes, and does nothing
SLEEPS = "#!/bin/sh\nexec sleep 1000\n"  # an ordinary job


def nodes_of(site: Site, array: int) -> list[str]:
    """The nodes of a trainer, as the controller shows them."""
    return sorted(site.controller.trainer(array)["nodes"])


def wait_for_nodes(site: Site, array: int, *nodes: str, within_s: float = 300.0) -> None:
    """Wait until a trainer has just these nodes."""
    wait_until(lambda: nodes_of(site, array) == sorted(nodes), within_s)


def wait_for_size(site: Site, array: int, nodes: int) -> None:
    """Wait until a trainer has so many nodes."""
    wait_until(lambda: len(nodes_of(site, array)) == nodes)


def wait_for_reclaims(site: Site, array: int, count: int) -> None:
    """Wait until so many elements of a trainer were reclaimed."""
    wait_until(lambda: site.controller.trainer(array)["reclaimed"] == count)


def ordinary(site: Site, *options: str, script: str = SLEEPS) -> int:
    """An ordinary job of bob's."""
    return site.lab.sbatch("-p", "main", "-o", "/dev/null", *options, script=script, user="bob")


def runs(site: Site, job: int) -> bool:
    """Whether a job, or any element of a trainer, runs."""
    return "R" in site.lab.squeue(job, "%t")


def start(site: Site, *options: str) -> int:
    """An ordinary job of bob's that runs."""
    job = ordinary(site, *options)
    wait_until(lambda: runs(site, job))
    return job


def shown(site: Site, *command: str, user: str = "alice") -> str:
    """What a command of ours says, in one line."""
    done = site.run("bftrainer", *command, user=user, check=False)
    return " ".join((done.stdout + done.stderr).split())


def leave_nothing(site: Site) -> None:
    """End what a test has left, so that the next one finds all nodes idle."""
    for user in ("alice", "bob"):
        site.run("scancel", "--me", user=user)
    site.lab.wait_until_idle()


@contextmanager
def without_controller(site: Site) -> Iterator[None]:
    """The site's controller is away meanwhile."""
    site.controller.stop()
    try:
        yield
    finally:
        site.controller.start()


@contextmanager
def slurm_has(site: Site, *lines: str) -> Iterator[None]:
    """Slurm has these lines of slurm.conf meanwhile, in place of those with the same key."""
    conf = site.lab.dir / "slurm.conf"
    before, keys = conf.read_text(), {line.partition("=")[0] for line in lines}
    kept = (line for line in before.splitlines() if line.partition("=")[0] not in keys)

    def reconfigure(text: str) -> None:
        with without_controller(site):  # which asks for them now and then
            conf.write_text(text)
            site.run("scontrol", "reconfigure", user=ADMIN)

    reconfigure("\n".join([*kept, *lines, ""]))
    try:
        yield
    finally:
        reconfigure(before)


@contextmanager
def controlled_with(site: Site, settings: Mapping[str, object]) -> Iterator[None]:
    """The site's controller has other settings meanwhile."""

    def restart(settings: Mapping[str, object]) -> None:
        site.controller.stop()
        site.configure({"listen": site.keeper, "metrics": "127.0.0.1:0", **settings})
        site.controller.start()

    restart(settings)
    try:
        yield
    finally:
        restart(QUICK)


@contextmanager
def controlled_by_bob(site: Site, *arguments: str) -> Iterator[Controller]:
    """Bob's own controller works in place of the site's (personal mode)."""
    own = site.own_controller("bob")
    own.arguments = (*own.arguments, *arguments)
    own.log.unlink(missing_ok=True)
    with without_controller(site), own.running():
        yield own


def submit_personal(site: Site, own: Controller, script: str, nodes: str, *options: str) -> int:
    """Submit a script of bob's as a trainer of his own controller."""
    path = site.folder("bob") / "train.sh"
    path.write_text(script)
    command = ("bftrainer", "submit", "--personal", "--state", str(own.state), "--json")
    words = ("-p", "bftrainer", "-N", nodes, "--output=/dev/null", *options, str(path))
    return int(json.loads(site.run(*command, *words, user="bob").stdout)["array"])


def wait_for_more_samples(site: Site, array: int) -> None:
    """Wait until a trainer has trained further; it may have to import torch first."""

    def samples() -> float:
        return float(site.controller.trainer(array)["samples"] or 0)

    before = samples()
    wait_until(lambda: samples() > before, 500)
