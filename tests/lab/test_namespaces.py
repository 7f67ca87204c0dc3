"""A node's own cgroups of version 2, as its slurmd wants them, without Slurm."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.labcluster import namespaces
from scripts.labcluster.processes import child_of, end, launch
from scripts.labcluster.waiting import wait_until

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root: it makes namespaces")


def version_two() -> Path:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    found = [Path(where) for _, where, kind, *_ in mounts if kind == "cgroup2"]
    if not found:
        pytest.skip("this host has no cgroup2 mount")
    return found[0]


@pytest.fixture(scope="module")
def on_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """Runs a shell's command as a daemon of a node, and returns what it says."""
    hierarchy = namespaces.Hierarchy(2, version_two())
    folder = tmp_path_factory.mktemp("node")
    (folder / "run").mkdir()
    (folder / "hosts").write_text("127.0.0.1 localhost\n")
    hierarchy.make(folder, "n1")
    holder = namespaces.holder(hierarchy, False, folder, "n1")
    outer = launch(holder, folder / "log")
    first = child_of(outer, 60)
    wait_until((folder / "run" / "n1.ready").exists, otherwise=(folder / "log").read_text())

    def run(command: str) -> str:
        within = namespaces.within(first.pid, hierarchy.of_daemons, ["sh", "-c", command])
        return subprocess.run(within, check=True, capture_output=True, text=True).stdout

    yield run
    end([first, outer])
    wait_until(lambda: hierarchy.remove(folder), otherwise="its cgroups are still used")


def test_its_daemons_are_in_a_cgroup_below_the_nodes_root(on_node: Callable[..., str]) -> None:
    assert "0::/daemons\n" in on_node("cat /proc/self/cgroup")


def test_nobody_whom_they_cannot_see_is_in_it(on_node: Callable[..., str]) -> None:
    assert "0" not in on_node("cat /sys/fs/cgroup/daemons/cgroup.procs").split()


def test_they_see_one_mount_of_cgroups_and_its_root_is_the_nodes(
    on_node: Callable[..., str],
) -> None:
    mounts = [line.split() for line in on_node("cat /proc/self/mountinfo").splitlines()]
    assert [root for _, _, _, root, where, *_ in mounts if where == "/sys/fs/cgroup"] == ["/"]
