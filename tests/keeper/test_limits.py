"""How much one user may ask of the keeper: requests at a time, connections, messages a second."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.home import read_address
from bftrainer_slurm.keeper.limits import (
    MAX_MESSAGES_OF_USER,
    MESSAGES_OF_MEMBER,
    Places,
    Share,
    address_of,
    to_evict,
)
from bftrainer_slurm.keeper.protocol import ProtocolError, parse_address
from scripts.labcluster.waiting import wait_until
from tests.keeper.inside import keeper_inside


def test_one_user_cannot_take_all_places() -> None:
    places = Places(4, 2)
    with ExitStack() as taken:
        for owner in ("greedy", "greedy", "modest"):
            taken.enter_context(places.one(owner))
        with pytest.raises(ProtocolError, match="too many"), places.one("greedy"):
            pass
        with places.one("modest"), pytest.raises(ProtocolError), places.one("a third"):
            pass


def test_a_place_is_free_again_however_its_request_ends() -> None:
    places = Places(2, 1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), places.one("one"):
            raise ZeroDivisionError
    with places.one("one"):
        pass


def test_strangers_who_do_not_read_leave_places_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bftrainer_slurm.keeper.server.MAX_READERS_OF_ONE", 0)
    with keeper_inside() as keeper:
        stranger = KeeperClient(f"127.0.0.1:{keeper.port}")
        with pytest.raises(KeeperError, match="ask again"):
            stranger.status()
        assert keeper.refusals["too_many"] == 1


def test_the_oldest_of_the_greediest_address_goes() -> None:
    waiting = dict(enumerate(["honest", "greedy", "greedy", "greedy", "honest", "other"]))
    gone = []
    while waiting:
        gone.append(to_evict(waiting))
        del waiting[gone[-1]]
    assert gone == [1, 0, 2, 3, 4, 5]


def test_an_address_is_read_off_a_peers_name() -> None:
    assert address_of(("10.0.0.1", 4321)) == "10.0.0.1"
    assert address_of(("::1", 4321, 0, 0)) == "::1"
    assert address_of("") == address_of(None) == "?"


def test_where_few_files_may_be_open_silence_keeps_nobody_out_either(tmp_path: Path) -> None:
    command = shlex.join([sys.executable, "-m", "bftrainer_slurm.keeper", "--state", str(tmp_path)])
    with ExitStack() as stack:
        keeper = subprocess.Popen(["bash", "-c", f"ulimit -n 128; exec {command}"])
        stack.callback(keeper.wait)
        stack.callback(keeper.kill)
        wait_until(lambda: read_address(tmp_path))
        address = read_address(tmp_path) or ""
        host, port = parse_address(address)
        for _ in range(300):
            stack.enter_context(socket.create_connection((host, port), 10))
        assert (
            KeeperClient(address, timeout_s=30).status()[1] is None
        )  # an answer: there is none yet


def most(share: Share, now_s: float) -> int:
    share.messages = 0
    while not share.floods(now_s):
        pass
    return share.messages - 1


def test_with_each_member_a_user_may_send_more() -> None:
    share = Share(1001, 0.0)
    assert most(share, 0.0) == MAX_MESSAGES_OF_USER
    for _ in range(10):
        share.add(12)
    assert most(share, 0.0) == MAX_MESSAGES_OF_USER + 10 * MESSAGES_OF_MEMBER
    share.lose(12)
    assert most(share, 0.0) == MAX_MESSAGES_OF_USER + 9 * MESSAGES_OF_MEMBER


def test_what_comes_at_once_after_the_keeper_stood_still_is_no_flood() -> None:
    assert most(Share(1001, 0.0), 30.0) == 30 * MAX_MESSAGES_OF_USER
