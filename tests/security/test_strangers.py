"""Another user at the keeper's port: nothing comes of it for anybody else, and it is counted."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bftrainer_slurm.keeper.client import KeeperClient
from bftrainer_slurm.keeper.protocol import VERSION
from scripts.labcluster.site import Site
from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until
from tests.security.conftest import HOLDS, Victim
from tests.security.stranger import TIMES

pytestmark = [pytest.mark.slurm, pytest.mark.once, pytest.mark.timeout(1500)]


@contextmanager
def attack(kind: str, site: Site, victim: Victim) -> Iterator[subprocess.Popen[str]]:
    """What bob's process does, see stranger.py; it is ended with the context."""
    script = (REPO / "tests" / "security" / "stranger.py").read_text()
    process = subprocess.Popen(
        [
            site.stage.repo / ".venv" / "bin" / "python",
            "-c",
            script,
            kind,
            address(site),
            str(victim.array),
            str(VERSION),
        ],
        cwd="/",
        stdout=subprocess.PIPE,
        text=True,
        user="bob",
        group="bob",
        extra_groups=[],
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def address(site: Site) -> str:
    return site.controller.keeper.address


def refused(site: Site) -> dict[str, int]:
    counts: dict[str, int] = site.controller.status()["keeper"]["refused"]
    return counts


def lines_about(site: Site, kind: str) -> int:
    """How many lines the keeper's log has on refusals of a kind that came from this host."""
    log = (site.controller.state / "keeper.log").read_text()
    return log.count(f"refused ({kind}), from 127.0.0.1:")


def test_garbage_is_refused_counted_and_logged_once(site: Site, victim: Victim) -> None:
    with attack("garbage", site, victim) as process:
        assert process.wait(600) == 0
    counts = refused(site)
    assert counts["bad_proof"] >= 10 * TIMES
    assert counts["malformed"] >= 2 * TIMES
    assert counts["oversized"] >= 2 * TIMES
    for kind in ("bad_proof", "malformed", "oversized"):
        assert lines_about(site, kind) == 1


def test_hints_of_others_change_nothing(site: Site, victim: Victim) -> None:
    nodes = victim.nodes
    with attack("hints", site, victim) as process:
        assert process.wait(600) == 0
    wait_until(lambda: site.controller.status().get("trainers"))
    assert site.controller.status()["controller"]["error"] is None
    assert victim.nodes == nodes
    assert site.controller.trainer(victim.array)["failures"] == 0


def test_who_sits_in_the_door_keeps_nobody_out(site: Site, victim: Victim) -> None:
    with attack("silence", site, victim) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "sits\n"
        array = site.submit(HOLDS, "1-1", user="carol")
        try:
            wait_until(lambda: len(site.controller.trainer(array)["nodes"]) == 1)
            while process.poll() is None:
                assert KeeperClient(address(site), timeout_s=60).status()[1] is not None
        finally:
            site.end(array)
    kinds = refused(site)
    assert kinds.get("mute", 0) + kinds.get("too_many", 0) > 0


def test_who_does_not_read_keeps_nobody_from_working(site: Site, victim: Victim) -> None:
    with attack("readers", site, victim) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "sits\n"
        array = site.submit(HOLDS, "1-1", user="carol")
        try:
            wait_until(lambda: "R" in site.lab.squeue(array, "%t"))
        finally:
            site.end(array)


def test_the_state_folder_shows_others_nothing_but_the_address(site: Site, victim: Victim) -> None:
    def readable(path: Path) -> bool:
        return site.lab.run("cat", path, user="bob", check=False).returncode == 0

    files = [path for path in site.controller.state.rglob("*") if path.is_file()]
    assert {"keeper.token", "history.sqlite", "keeper.log"} <= {path.name for path in files}
    assert [path.name for path in files if readable(path)] == ["keeper.json"]
    site.lab.run("touch", site.controller.state / "mine", user="bob", check=False)
    assert not (site.controller.state / "mine").exists()


def test_nobody_has_to_trust_a_socket_in_the_file_system(site: Site, victim: Victim) -> None:
    assert not [path for path in site.controller.state.rglob("*") if path.is_socket()]
    assert (
        Path(f"/proc/{site.controller.keeper.pid}").stat().st_uid
        == site.controller.state.stat().st_uid
    )


@pytest.mark.parametrize("mode", ["site", "personal"])
def test_the_controller_does_not_run_as_root(site: Site, mode: str) -> None:
    state = site.lab.dir / "roots"
    command = ("bftrainer", "controller", "--mode", mode, "--state", state)
    done = site.run(*command, user="root", check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "do not run it as root" in done.stderr
    assert not state.exists()
