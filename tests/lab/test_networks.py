"""Nodes with networks of their own: they meet through the switch, and can be cut off from all."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.labcluster import networks
from scripts.labcluster.lab import Lab, started_lab
from scripts.labcluster.processes import launch
from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.once,
    pytest.mark.skipif(
        os.getuid() != 0 or not shutil.which("ip", path="/usr/sbin:/sbin"),
        reason="needs root and iproute2",
    ),
]
ADDRESS = ("sh", "-c", "echo $SLURMD_NODENAME $(hostname -I)")

# A connection that is refused has reached the other node.
ASKS = """#!/usr/bin/python3
import socket, time
while True:
    time.sleep(0.3)
    try:
        socket.create_connection(("{address}", 9), 1)
    except OSError as error:
        with open("{answers}", "a") as file:
            print("reached" if isinstance(error, ConnectionRefusedError) else "cut", file=file)
"""


@pytest.fixture(scope="module")
def apart() -> Iterator[Lab]:
    with started_lab(nodes=3, networks=True, conf=["SlurmdTimeout=5"]) as running:
        yield running


def addresses(lab: Lab) -> dict[str, str]:
    told = lab.run("srun", "-N3", *ADDRESS).stdout.splitlines()
    return dict(line.split()[:2] for line in told)


def links() -> set[str]:
    listed = subprocess.run(["ip", "-json", "link"], capture_output=True, text=True, check=True)
    return {link["ifname"] for link in json.loads(listed.stdout)}


def link_to(subnet: str) -> str:
    _, second, third, _ = subnet.split(".")
    return f"bftlab-{second}-{third}"


def link_of(lab: Lab) -> str:
    return link_to(json.loads((lab.dir / "lab.json").read_text())["subnet"])


def wait_until_gone(link: str) -> None:
    """The kernel takes a namespace apart in its own time."""
    wait_until(lambda: link not in links())


def test_each_node_has_an_address_of_its_own(apart: Lab) -> None:
    found = addresses(apart)
    assert sorted(found) == ["n1", "n2", "n3"]
    assert len(set(found.values())) == 3


def test_a_node_that_is_cut_off_reaches_nobody_and_comes_back(apart: Lab) -> None:
    apart.wait_until_idle()
    other = addresses(apart)["n1"]
    answers = apart.home("alice") / "answers"
    script = ASKS.format(address=other, answers=answers)
    job = apart.sbatch("-w", "n2", "-o", "/dev/null", script=script)

    def last() -> str:
        lines = answers.read_text().splitlines() if answers.exists() else []
        return lines[-1] if lines else ""

    wait_until(lambda: last() == "reached")
    apart.cluster.disturb("n2", "cut")
    wait_until(lambda: last() == "cut")
    assert apart.run("srun", "-w", "n1,n3", "true").returncode == 0  # the others see each other
    apart.cluster.disturb("n2", "mend")
    wait_until(lambda: last() == "reached")
    apart.run("scancel", str(job))
    apart.wait_until_idle()
    assert sorted(addresses(apart)) == ["n1", "n2", "n3"]


def test_clusters_side_by_side_have_different_networks(apart: Lab) -> None:
    with started_lab(nodes=1, networks=True) as other:
        assert link_of(other) != link_of(apart)
        assert {link_of(other), link_of(apart)} <= links()
    assert link_of(apart) in links()


def test_down_leaves_no_network_even_when_a_node_is_cut_off() -> None:
    with started_lab(nodes=1, networks=True) as lab:
        link = link_of(lab)
        lab.cluster.disturb("n1", "cut")
        assert link in links()
    wait_until_gone(link)


def test_without_its_processes_no_network_is_left(tmp_path: Path) -> None:
    """However a cluster was killed: the kernel takes links with the namespaces that they join."""
    holders = [launch(networks.HOLDER, tmp_path / "log") for _ in range(2)]
    switch, node = holders
    for one in holders:
        wait_until(lambda one=one: networks.is_apart(one.pid))  # type: ignore[misc]
    subnet = networks.make_switch(switch.pid)
    networks.plug_in(switch.pid, node.pid, "n1", networks.node_of(subnet, 1))
    link = link_to(str(subnet))
    assert link in links()
    for one in holders:
        os.kill(one.pid, 9)
        os.waitpid(one.pid, 0)
    wait_until_gone(link)


def test_nodes_reach_each_other_by_their_names(apart: Lab) -> None:
    known = apart.run("srun", "-w", "n1", "getent", "hosts", "n2").stdout.split()
    assert known == [addresses(apart)["n2"], "n2"]


def test_that_networks_have_no_room_for_more_nodes_is_said(tmp_path: Path) -> None:
    command = [REPO / "scripts" / "lab", "up", "--networks", "--nodes", "251"]
    done = subprocess.run([*command, "--dir", tmp_path / "lab"], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
