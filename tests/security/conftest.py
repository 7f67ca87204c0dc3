"""One site with three users for all of these tests; alice's trainer holds two of its nodes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.labcluster.site import Site, started_site
from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until

HOLDS = "#!/bin/bash\nsrun sleep 10000\n"


def nodes_of(site: Site, array: int) -> list[str]:
    """The nodes that the controller says a trainer has."""
    nodes: list[str] = site.controller.trainer(array)["nodes"]
    return nodes


def plugin_for_another_slurm(folder: Path) -> Path:
    """Build the plugin for a version of Slurm that is not the one here; return its file."""
    include, plugin = folder / "include", folder / "old" / "bftrainer.so"
    shutil.copytree("/usr/include/slurm", include / "slurm")
    version = include / "slurm" / "slurm_version.h"
    version.write_text(re.sub(r"(VERSION_NUMBER) 0x.*", r"\1 0x130500", version.read_text()))
    quick = (f"SLURM_INCLUDE={include}", "CFLAGS=-O0", "CPPFLAGS=")
    make = ("make", "-s", "-C", REPO / "slurm_plugin", *quick, f"BUILD={plugin.parent}", plugin)
    subprocess.run(make, check=True)
    return plugin


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    if os.getuid() != 0:
        pytest.skip("needs root to be three users")
    with started_site(nodes=4) as running:
        yield running


@pytest.fixture(scope="session")
def trainer_of_alice(site: Site) -> Iterator[int]:
    array = site.submit(HOLDS, "2-2")
    wait_until(lambda: len(site.lab.running(array)) == 2 and len(nodes_of(site, array)) == 2)
    yield array
    site.end(array)


@pytest.fixture
def victim(site: Site, trainer_of_alice: int) -> Iterator[int]:
    """The same trainer, which a test leaves as it was: not an element has been started anew."""
    before = site.lab.running(trainer_of_alice)
    yield trainer_of_alice
    assert site.lab.running(trainer_of_alice) == before
    wait_until(lambda: len(nodes_of(site, trainer_of_alice)) == 2)
