"""Of two hosts a program works where slurmctld is in charge, under one lock, and else ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from bftrainer_slurm import while_in_charge
from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.home import StateError, own_secret, read_address, read_token
from bftrainer_slurm.slurm.gateway import SlurmUnavailableError
from bftrainer_slurm.while_in_charge import ENDED, LIMIT_S, Watch, place_to_work
from scripts.labcluster.cluster import free_ports
from scripts.labcluster.waiting import wait_until
from tests.tools import program

HERE = {"c1": False, "c2": True}  # slurmctld's hosts, as c2 sees them
THERE = {"c1": True, "c2": True}
LONGEST_S = 300.0


class Host:
    """A host's watch, with a clock and an answer of slurmctld that a test sets."""

    def __init__(self, folder: Path, name: str = "c2", hosts: Mapping[str, bool] = HERE) -> None:
        self.now_s, self.hosts, self.silent = 0.0, hosts, False
        self.lock = os.open(folder / "keeper.lock", os.O_RDWR | os.O_CREAT)
        self.watch = Watch(self.lock, self._ask, name, lambda: self.now_s)

    def _ask(self) -> Mapping[str, bool]:
        if self.silent:
            raise SlurmUnavailableError("no answer")
        return self.hosts

    def works(self) -> bool:
        self.watch.look()
        return self.watch.holds()

    def dies(self) -> None:
        os.close(self.lock)


@pytest.mark.parametrize(
    ("name", "hosts", "works"),
    [
        *((name, HERE, True) for name in ("c2", "c2.example.org", "C2")),
        *(("c2", hosts, False) for hosts in (THERE, {"c1": False, "c2": False}, {})),
    ],
)
def test_it_works_where_slurmctld_is_in_charge_and_waits_elsewhere(
    tmp_path: Path, name: str, hosts: dict[str, bool], works: bool
) -> None:
    assert Host(tmp_path, name, hosts).works() is works


def test_it_waits_until_the_other_has_gone_though_slurmctld_is_in_charge(tmp_path: Path) -> None:
    first, second = Host(tmp_path, "c1", THERE), Host(tmp_path)
    assert first.works()
    assert not second.works()
    first.dies()
    assert second.works()


@pytest.mark.parametrize("why", ["slurmctld is there", "silence", "the lock cannot be written"])
def test_it_ends_a_while_after_it_has_last_seen_that_it_may_work(tmp_path: Path, why: str) -> None:
    host = Host(tmp_path)
    assert host.works()
    if why == "slurmctld is there":
        host.hosts = THERE
    elif why == "silence":
        host.silent = True
    else:
        host.dies()
    host.now_s = LIMIT_S - 1.0
    assert host.works()
    host.now_s = LIMIT_S
    assert not host.works()


def test_a_slurmctld_that_is_away_for_a_moment_costs_nothing(tmp_path: Path) -> None:
    host = Host(tmp_path)
    for now_s in range(0, 1000, int(LIMIT_S) - 1):
        host.now_s, host.silent = float(now_s), not host.silent
        host.watch.look()
        host.silent = False
        assert host.works()


def test_a_host_without_slurmctld_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"\(login\) has no slurmctld: scontrol ping says c1, c2"):
        Host(tmp_path, "login").works()


@pytest.mark.parametrize("first", [True, False])
def test_commands_leave_a_silent_first_host_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, first: bool
) -> None:
    conf, shared = tmp_path / "slurm.conf", tmp_path / "shared"
    conf.touch()
    shared.mkdir()
    monkeypatch.setenv("SLURM_CONF", str(conf))
    monkeypatch.setattr(socket, "gethostname", lambda: "c2")
    hosts = {"c2": True, "c1": False} if first else HERE
    monkeypatch.setattr(while_in_charge, "ping", lambda _: hosts)
    with place_to_work("controller", tmp_path / "own", shared) as folder:
        assert folder == shared
        used = Path(os.environ["SLURM_CONF"])
    assert used == conf if first else used.is_relative_to(shared)


def test_a_site_with_one_host_works_in_its_own_folder_and_asks_nobody(tmp_path: Path) -> None:
    with place_to_work("controller", tmp_path / "own", None) as folder:
        assert folder == tmp_path / "own"
        with pytest.raises(StateError, match="another controller works"):
            place_to_work("controller", tmp_path / "own", None).__enter__()


KEEPER = """
import socket, sys
from pathlib import Path
from bftrainer_slurm import while_in_charge
from bftrainer_slurm.keeper.__main__ import serve
from bftrainer_slurm.keeper.credentials import Means
host, listen, shared = sys.argv[1:]
socket.gethostname = lambda: host
while_in_charge.LIMIT_S = 6.0
sys.exit(serve(Path("/nowhere"), listen, Means(), Path(shared)))
"""


@pytest.mark.torch
def test_a_keeper_ends_beyond_its_time_and_the_other_hosts_works_while_slurmctld_is_there(
    tmp_path: Path,
) -> None:
    shared, answer = tmp_path / "shared", tmp_path / "answer"
    addresses = {f"c{i}": f"127.0.0.{i}:{port}" for i, port in enumerate(free_ports(2), 1)}
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    shared.mkdir()
    own_secret(shared)
    program(tmp_path, "scontrol", f"cat {answer}")

    def up(*hosts: str) -> None:
        states = {host: "UP" if host in hosts else "DOWN" for host in addresses}
        beside = tmp_path / "answer.new"
        beside.write_text(
            "".join(f"Slurmctld(x) at {c} is {state}\n" for c, state in states.items())
        )
        beside.replace(answer)

    def start(host: str) -> subprocess.Popen[bytes]:
        words = (sys.executable, "-c", KEEPER, host, addresses[host], str(shared))
        process = stack.enter_context(subprocess.Popen(words, env=environment))
        stack.callback(process.kill)
        return process

    def answers(host: str) -> bool:
        try:
            KeeperClient(addresses[host], read_token(shared)).status()
        except KeeperError:
            return False
        return True

    with ExitStack() as stack:
        up("c1", "c2")
        first = start("c1")
        wait_until(lambda: answers("c1"), LONGEST_S)
        second, token = start("c2"), read_token(shared)
        first.send_signal(signal.SIGSTOP)
        with pytest.raises(subprocess.TimeoutExpired):
            first.wait(8)
        first.send_signal(signal.SIGCONT)
        assert first.wait(LONGEST_S) == ENDED
        up("c2")
        wait_until(lambda: answers("c2"), LONGEST_S)
        assert (read_token(shared), read_address(shared)) == (token, addresses["c2"])
        up("c1")
        assert second.wait(LONGEST_S) == ENDED
