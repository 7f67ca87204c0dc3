"""Nodes whose own name says nothing to the others: Debian's installer gives it 127.0.1.1."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from scripts.labcluster.site import Site, started_site
from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until
from tests.elastic.agents import steps_in

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.torch,
    pytest.mark.once,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        os.getuid() != 0 or not shutil.which("ip", path="/usr/sbin:/sbin"),
        reason="needs root and iproute2",
    ),
]

SCRIPT = """#!/bin/bash
export OMP_NUM_THREADS=1
unset GLOO_SOCKET_IFNAME
srun torchrun {script} {folder}
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with started_site(nodes=2, networks=True) as running:
        yield running


@pytest.mark.parametrize("names", ["127.0.1.1 n1\n127.0.1.1 n2\n", ""], ids=["loopback", "none"])
def test_nodes_train_together_whatever_their_own_names_say(site: Site, names: str) -> None:
    hosts = site.lab.dir / "hosts"
    others = [line for line in hosts.read_text().splitlines() if line.split()[-1:] not in NODES]
    hosts.write_text("\n".join(others) + "\n" + names)  # in place: it is mounted
    folder = site.folder()
    script = shutil.copy(REPO / "tests" / "elastic" / "ddp.py", folder / "train.py")
    array = site.submit(SCRIPT.format(script=script, folder=folder), "1-2")
    try:
        wait_until(lambda: any(step.world == 2 for step in steps_in(folder)), 400)
        assert site.controller.trainer(array)["failures"] == 0
    finally:
        site.end(array)


NODES = (["n1"], ["n2"])
