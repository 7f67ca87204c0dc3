"""Another user at the keeper's port and folder, and before the status: what they do and see.

What is refused at the port, counted and limited is tested in ``keeper``, without Slurm.
"""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path

import pytest

from bftrainer_slurm.keeper.protocol import parse_address
from scripts.labcluster.site import Site
from scripts.labcluster.waiting import wait_until
from tests.security.conftest import nodes_of

pytestmark = [pytest.mark.slurm, pytest.mark.once, pytest.mark.timeout(1500)]


PRIVATE = {"samples", "steps", "measures", "error", "curve", "rescale", "why", "notice"}


def test_hints_that_anybody_can_send_change_nothing(site: Site, victim: int) -> None:
    """That somebody else's elements are gone, that they leave, and that they came."""
    nodes, address = nodes_of(site, victim), parse_address(site.controller.keeper.address)
    for number in range(600):
        array = victim if number % 2 else 10**9 + number
        for words in ("gone {} 0 n1", "leaving {} 1 n2", "up {} 0 n3", "leaving {} 7 n1"):
            with contextlib.suppress(OSError), socket.create_connection(address, 10) as connection:
                connection.sendall(f"{words.format(array)}\n".encode())
    wait_until(lambda: site.controller.status().get("trainers"))
    assert site.controller.status()["controller"]["error"] is None
    assert nodes_of(site, victim) == nodes
    assert site.controller.trainer(victim)["failures"] == 0


def test_the_state_folder_shows_others_nothing_but_the_address(site: Site, victim: int) -> None:
    def readable(path: Path) -> bool:
        return site.lab.run("cat", path, user="bob", check=False).returncode == 0

    files = [path for path in site.controller.state.rglob("*") if path.is_file()]
    assert {"keeper.token", "history.sqlite", "keeper.log"} <= {path.name for path in files}
    assert [path.name for path in files if readable(path)] == ["keeper.json"]
    site.lab.run("touch", site.controller.state / "mine", user="bob", check=False)
    assert not (site.controller.state / "mine").exists()
    assert not [path for path in site.controller.state.rglob("*") if path.is_socket()]
    keeper = Path(f"/proc/{site.controller.keeper.pid}")
    assert keeper.stat().st_uid == site.controller.state.stat().st_uid


def test_how_a_trainer_does_is_for_its_owner_and_operators(site: Site, victim: int) -> None:
    for user in ("alice", "root", "slurm", "bob", "carol"):
        listed = site.run("bftrainer", "status", "--json", user=user).stdout
        (seen,) = [one for one in json.loads(listed)["trainers"] if one["array"] == victim]
        shown = set() if user in ("bob", "carol") else PRIVATE
        assert (seen.keys() & PRIVATE, seen["nodes"]) == (shown, nodes_of(site, victim))


@pytest.mark.parametrize("mode", ["site", "personal"])
def test_the_controller_does_not_run_as_root(site: Site, mode: str) -> None:
    state = site.lab.dir / "roots"
    command = ("bftrainer", "controller", "--mode", mode, "--state", state)
    done = site.run(*command, user="root", check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "do not run it as root" in done.stderr
    assert not state.exists()
