"""A site whose Slurm proves by itself who is who (auth/slurm): no MUNGE anywhere."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from bftrainer_slurm.keeper.credentials import JOB_SECRET
from scripts.labcluster.site import Site, started_site
from scripts.labcluster.waiting import wait_until
from tests.installed_slurm import slurm_version

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.torch,
    pytest.mark.newest,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(slurm_version() < (23, 11), reason="auth/slurm came with Slurm 23.11"),
    pytest.mark.skipif(os.getuid() != 0, reason="needs root to be several users"),
]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with started_site(nodes=2, auth_slurm=True) as running:
        yield running


def test_a_trainer_meets_in_our_rendezvous_and_trains(site: Site) -> None:
    array, _ = site.digits("2-2", samples=100_000)
    wait_until(lambda: site.controller.trainer(array).get("samples"), 500)
    trainer = site.controller.trainer(array)
    assert len(trainer["nodes"]) == 2
    assert site.controller.status()["keeper"]["refused"] == {}
    site.end(array)


def test_the_secret_is_in_the_elements_own_environment_alone(site: Site) -> None:
    script = f"#!/bin/bash\ntest ${{#{JOB_SECRET}}} = 64 && touch good\nsleep 600\n"
    folder = site.folder()
    array = site.submit(script, "1-1", f"--chdir={folder}")
    wait_until((folder / "good").exists)
    shown = site.lab.run("scontrol", "show", "job", str(array), user="bob", check=False).stdout
    assert JOB_SECRET not in shown
    site.end(array)
