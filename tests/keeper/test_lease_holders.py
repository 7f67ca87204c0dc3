"""A keeper with a shared folder works on one host, and ends where it may work no more."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.home import find_or_start, own_secret, own_token
from bftrainer_slurm.keeper.lease import LOST
from scripts.labcluster.cluster import free_ports
from scripts.labcluster.waiting import wait_until

pytestmark = pytest.mark.torch

LONGEST_S = 300.0


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


@pytest.fixture
def processes() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(state: Path, listen: str, shared: Path, processes: ExitStack) -> subprocess.Popen[bytes]:
    """Start the keeper of one host."""
    state.mkdir(exist_ok=True)
    own_secret(state)
    command = [sys.executable, "-m", "bftrainer_slurm.keeper", "--state", str(state)]
    process = subprocess.Popen([*command, "--listen", listen, "--shared", str(shared)])
    processes.callback(process.wait)
    processes.callback(process.kill)
    return process


def answers(address: str, shared: Path) -> bool:
    try:
        KeeperClient(address, own_token(shared)).status()
    except KeeperError:
        return False
    return True


def test_the_keeper_of_the_other_host_works_once_the_first_is_killed(
    tmp_path: Path, shared: Path, processes: ExitStack
) -> None:
    a, b = (f"127.0.0.1:{port}" for port in free_ports(2))
    first = start(tmp_path / "a", a, shared, processes)
    wait_until(lambda: answers(a, shared), LONGEST_S)
    start(tmp_path / "b", b, shared, processes)
    token = own_token(shared)
    assert not answers(b, shared)
    first.kill()
    wait_until(lambda: answers(b, shared), LONGEST_S)
    assert own_token(shared) == token


def test_a_keeper_that_was_stopped_beyond_its_time_ends_when_it_goes_on(
    tmp_path: Path, shared: Path, processes: ExitStack
) -> None:
    a, b = (f"127.0.0.1:{port}" for port in free_ports(2))
    first = start(tmp_path / "a", a, shared, processes)
    wait_until(lambda: answers(a, shared), LONGEST_S)
    first.send_signal(signal.SIGSTOP)
    start(tmp_path / "b", b, shared, processes)
    wait_until(lambda: answers(b, shared), LONGEST_S)
    first.send_signal(signal.SIGCONT)
    assert first.wait(LONGEST_S) == LOST


def test_whoever_looks_for_the_keeper_finds_it_on_the_other_host(
    tmp_path: Path, shared: Path, processes: ExitStack
) -> None:
    a, b = (f"127.0.0.1:{port}" for port in free_ports(2))
    start(tmp_path / "b", b, shared, processes)
    wait_until(lambda: answers(b, shared), LONGEST_S)
    here = tmp_path / "a"
    here.mkdir()
    assert find_or_start(here, f"{a},{b}", shared=shared).address == b
