"""A keeper that may be on one of several hosts is found on the one where it answers."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.credentials import Gate
from bftrainer_slurm.keeper.home import find_or_start, own_secret
from bftrainer_slurm.keeper.membership import Membership
from bftrainer_slurm.keeper.messages import Identity, Role
from bftrainer_slurm.keeper.protocol import NoteKind
from scripts.labcluster.cluster import free_ports
from scripts.labcluster.keeper import Keeper
from tests.keeper.inside import KEY, TOKEN, Inside, keeper_inside, together

NOBODY = "127.0.0.1:1"  # every connection is refused


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that takes connections and says nothing, as a keeper that hangs."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_client_goes_on_to_the_host_that_answers(keeper: Inside, silent: str) -> None:
    address = f"{NOBODY},{silent},{keeper.client.address}"
    client = KeeperClient(address, TOKEN, timeout_s=3)
    client.own(13, 0, 1)
    assert client.status()[1] is None


def test_who_is_not_our_keeper_is_passed_over(keeper: Inside) -> None:
    with keeper_inside(Gate("another token", KEY)) as another:
        address = f"{another.client.address},{keeper.client.address}"
        KeeperClient(address, TOKEN).own(13, 0, 1)
        with pytest.raises(KeeperError, match="has another key"):
            KeeperClient(another.client.address, TOKEN).own(13, 0, 1)


def test_a_member_goes_on_to_the_host_that_answers(keeper: Inside) -> None:
    keeper.client.own(12, 0, 1)
    keeper.client = KeeperClient(f"{NOBODY},{keeper.client.address}", TOKEN)
    assert together([keeper.member(1)])[0].world == 1


@pytest.mark.torch
def test_members_that_lose_their_keeper_stand_with_the_next_as_before(tmp_path: Path) -> None:
    keepers = [Keeper(tmp_path / "first"), Keeper(tmp_path / "second")]
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    for keeper in keepers:
        keeper.state.mkdir()
    secret = own_secret(keepers[0].state)
    shutil.copy(secret, keepers[1].state / secret.name)
    with ExitStack() as stack:

        def start(at: int) -> Keeper:
            find_or_start(keepers[at].state, addresses[at])
            stack.callback(keepers[at].kill)
            keepers[at].client.own(12, 0, 3)
            return keepers[at]

        first = start(0)
        members = [
            Membership(",".join(addresses), Identity(12, task, "n", Role.AGENT), first.secret(12))
            for task in range(3)
        ]
        for member in members:
            member.start()
            stack.callback(member.close)
        together(members)
        first.kill()
        note = next(note for _, note in start(1).client.watch("", 0) if note)
        assert note.note.kind is NoteKind.REFORMED, "all are back where they were"
        assert dict(note.note.measures)["nodes"] == 3
        assert all(member.change is None for member in members)
