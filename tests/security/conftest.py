"""One site with three users for all of these tests; alice's trainer holds two of its nodes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.labcluster.site import Site, started_site
from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until

HOLDS = "#!/bin/bash\nsrun sleep 10000\n"


@dataclass(frozen=True)
class Victim:
    """Alice's trainer, that nobody else may disturb."""

    site: Site
    array: int

    def elements(self) -> dict[str, str]:
        """Since when each of its running elements runs."""
        return self.site.lab.running(self.array)

    @property
    def nodes(self) -> list[str]:
        nodes: list[str] = self.site.controller.trainer(self.array)["nodes"]
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
def trainer_of_alice(site: Site) -> Iterator[Victim]:
    victim = Victim(site, site.submit(HOLDS, "2-2"))
    wait_until(lambda: len(victim.elements()) == 2 and len(victim.nodes) == 2)
    yield victim
    site.end(victim.array)


@pytest.fixture
def victim(trainer_of_alice: Victim) -> Iterator[Victim]:
    """The same trainer, which a test leaves as it was: not an element has been started anew."""
    before = trainer_of_alice.elements()
    yield trainer_of_alice
    assert trainer_of_alice.elements() == before
    wait_until(lambda: len(trainer_of_alice.nodes) == 2)
