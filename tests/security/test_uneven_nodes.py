"""A site whose nodes are not alike: on some the plugin is missing, for another Slurm, or set wrong.

No element trains apart from its trainer there, and the controller leaves such nodes alone.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator

import pytest

from scripts.labcluster import namespaces
from scripts.labcluster.lab import Lab
from scripts.labcluster.site import Site, started_site
from scripts.labcluster.waiting import wait_until
from tests.security.conftest import plugin_for_another_slurm

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.torch,
    pytest.mark.once,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(os.getuid() != 0, reason="needs root: nodes have mounts of their own"),
]

GOOD, WITHOUT, OLD, WRONG = NODES = ("n1", "n2", "n3", "n4")


def give_plugstack(lab: Lab, node: str, text: str) -> None:
    """Let a node have a plugstack.conf of its own."""
    own = lab.dir / f"plugstack-{node}.conf"
    own.write_text(text)
    first = json.loads((lab.dir / "lab.json").read_text())["daemons"][f"host-{node}"][0]
    mount = ("mount", "--bind", own, lab.dir / "plugstack.conf")
    subprocess.run(namespaces.within(first, (), [*map(str, mount)]), check=True)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with started_site(nodes=len(NODES), linuxproc=True) as running:
        lab = running.lab
        line = (lab.dir / "plugstack.conf").read_text()
        good = line.split()[1]
        give_plugstack(lab, WITHOUT, "# nothing here\n")
        old = plugin_for_another_slurm(lab.dir / "another")
        give_plugstack(lab, OLD, line.replace(good, str(old)))
        give_plugstack(lab, WRONG, line.replace("keeper=", "keper="))
        yield running


@pytest.fixture(scope="module")
def trainer(site: Site) -> Iterator[int]:
    """A trainer that was let go on all nodes, and trains where it can."""
    array, _ = site.digits(f"1-{len(NODES)}", 10**9)
    wait_until(lambda: site.controller.status()["mute_nodes"] == [WITHOUT, OLD, WRONG], 500)
    yield array
    site.end(array)


def test_where_the_plugin_is_it_trains_and_no_failure_elsewhere_is_the_scripts(
    site: Site, trainer: int
) -> None:
    wait_until(lambda: (site.controller.trainer(trainer)["samples"] or 0) > 0)
    wait_until(lambda: site.controller.trainer(trainer)["nodes"] == [GOOD])
    shown = site.controller.trainer(trainer)
    assert (shown["failures"], shown["error"], shown["state"]) == (0, None, "running")


def test_where_it_is_not_nobody_trains_apart(site: Site, trainer: int) -> None:
    said = "The rendezvous backend 'bftrainer-plugin-missing-on-this-node' is not registered"
    texts = [path.read_text() for path in site.lab.home("alice").glob("work-*/*.out")]
    assert sum(said in text for text in texts) == 2
    assert sum("'keper=" in text and "this element ends" in text for text in texts) == 1


def test_the_doctor_names_the_nodes(site: Site, trainer: int) -> None:
    told = site.run("bftrainer", "doctor", check=False).stdout
    assert f"{WITHOUT}, {OLD}, {WRONG}: elements ran there" in " ".join(told.split())


@pytest.mark.parametrize("export", ["NONE", "HOME"])
def test_what_is_not_exported_is_no_way_around_it(site: Site, trainer: int, export: str) -> None:
    folder = site.folder()
    options = (f"--export={export}", "--exclude=n1,n3,n4", f"--output={folder}/%a.out")
    array = site.submit("#!/bin/bash\necho $PET_RDZV_BACKEND\n", "1-1", *options)
    output = folder / "0.out"
    said = "bftrainer-plugin-missing-on-this-node\n"
    wait_until(lambda: output.exists() and output.read_text() == said, 120)
    wait_until(lambda: site.controller.trainer(array)["nodes"] == [])
    assert site.controller.trainer(array)["state"] == "waiting"  # its good end says nothing
    site.end(array)
