"""A keeper that may be on one of several hosts is found on the one where it answers."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.credentials import Gate
from bftrainer_slurm.keeper.home import find_or_start, own_secret, read_address
from bftrainer_slurm.keeper.membership import Membership
from bftrainer_slurm.keeper.messages import Identity, Role
from bftrainer_slurm.keeper.protocol import NoteKind, ProtocolError, parse_addresses
from scripts.labcluster.cluster import free_ports
from scripts.labcluster.keeper import Keeper
from tests.keeper.inside import KEY, TOKEN, Inside, keeper_inside, together


@pytest.fixture
def keeper() -> Iterator[Inside]:
    with keeper_inside() as running:
        running.client.own(12, 0, 1)
        yield running


@pytest.fixture
def nobody() -> str:
    """An address where every connection is refused."""
    return f"127.0.0.1:{free_ports(1)[0]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that takes connections and says nothing, as a keeper that hangs."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("text", ["", "a", "a:1,", "a:1,b", "a:1,,b:2"])
def test_what_is_no_list_of_addresses_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        parse_addresses(text)


def test_a_client_goes_on_to_the_host_that_answers(
    keeper: Inside, nobody: str, silent: str
) -> None:
    address = f"{nobody},{silent},{keeper.client.address}"
    client = KeeperClient(address, TOKEN, timeout_s=3)
    client.own(13, 0, 1)
    assert client.status()[1] is None


def test_who_is_not_our_keeper_is_passed_over(keeper: Inside) -> None:
    with keeper_inside(Gate("another token", KEY)) as another:
        address = f"{another.client.address},{keeper.client.address}"
        KeeperClient(address, TOKEN).own(13, 0, 1)
        with pytest.raises(KeeperError, match="has another key"):
            KeeperClient(another.client.address, TOKEN).own(13, 0, 1)


def test_a_member_goes_on_to_the_host_that_answers(keeper: Inside, nobody: str) -> None:
    keeper.client = KeeperClient(f"{nobody},{keeper.client.address}", TOKEN)
    assert together([keeper.member(1)])[0].world == 1


@pytest.mark.torch
def test_members_that_lose_their_keeper_stand_with_the_other_host_s_as_before(
    tmp_path: Path,
) -> None:
    first, second = Keeper(tmp_path / "first"), Keeper(tmp_path / "second")
    ports = free_ports(2)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    for keeper in (first, second):
        keeper.state.mkdir()
    secret = own_secret(first.state)
    shutil.copy(secret, second.state / secret.name)
    with ExitStack() as stack:
        find_or_start(first.state, addresses[0])
        stack.callback(first.kill)
        first.client.own(12, 0, 3)
        members = [
            Membership(
                ",".join(addresses), Identity(12, task, f"n{task}", Role.AGENT), first.secret(12)
            )
            for task in range(3)
        ]
        for member in members:
            member.start()
            stack.callback(member.close)
        together(members)
        first.kill()
        find_or_start(second.state, addresses[1])
        stack.callback(second.kill)
        second.client.own(12, 0, 3)
        note = next(note for _, note in second.client.watch("", 0) if note)
        assert note.note.kind is NoteKind.REFORMED, "all are back where they were"
        assert dict(note.note.measures)["nodes"] == 3
        assert all(member.change is None for member in members)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_keeper_says_where_it_listens_and_how_it_was_ended(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    command = [sys.executable, "-m", "bftrainer_slurm.keeper", "--state", tmp_path / "state"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as keeper:
        assert keeper.stderr is not None
        line = keeper.stderr.readline()
        keeper.send_signal(number)
        assert keeper.wait(120) == code
    address = read_address(tmp_path / "state")
    assert line.endswith(f"keeper at {address}, state in {tmp_path / 'state'}\n")
