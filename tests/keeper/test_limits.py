"""How much one user, or a stranger, may ask of the keeper, and for how long."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.home import read_address, read_token
from bftrainer_slurm.keeper.limits import (
    MAX_MESSAGES_OF_USER,
    MESSAGES_OF_MEMBER,
    Places,
    Share,
    to_evict,
)
from bftrainer_slurm.keeper.protocol import ProtocolError, parse_address
from scripts.labcluster.waiting import wait_until
from tests.keeper.inside import Inside, keeper_inside
from tests.keeper.wire import Wire


def test_one_user_cannot_take_all_places_and_one_is_free_again_however_its_request_ends() -> None:
    places = Places(4, 2)
    for _ in range(3):
        with suppress(ZeroDivisionError), places.one("greedy"):
            raise ZeroDivisionError
    with ExitStack() as taken:
        for owner in ("greedy", "greedy", "modest"):
            taken.enter_context(places.one(owner))
        with pytest.raises(ProtocolError, match="too many"), places.one("greedy"):
            pass
        with places.one("modest"), pytest.raises(ProtocolError), places.one("a third"):
            pass


def test_the_oldest_of_the_greediest_address_goes() -> None:
    waiting = dict(enumerate(["honest", "greedy", "greedy", "greedy", "honest", "other"]))
    gone = []
    while waiting:
        gone.append(to_evict(waiting))
        del waiting[gone[-1]]
    assert gone == [1, 0, 2, 3, 4, 5]


def most(share: Share, now_s: float) -> int:
    share.messages = 0
    while not share.floods(now_s):
        pass
    return share.messages - 1


def test_with_each_member_a_user_may_send_more() -> None:
    share = Share(1001, 0.0)
    for members in range(3):
        assert most(share, 0.0) == MAX_MESSAGES_OF_USER + members * MESSAGES_OF_MEMBER
        share.add(12)
    share.lose(12)
    assert most(share, 0.0) == MAX_MESSAGES_OF_USER + 2 * MESSAGES_OF_MEMBER


def test_what_comes_at_once_after_the_keeper_stood_still_is_no_flood() -> None:
    assert most(Share(1001, 0.0), 30.0) == 30 * MAX_MESSAGES_OF_USER


# At the keeper itself.


def test_of_too_many_strangers_the_first_has_to_go(
    keeper: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper.registry, "_most_unproven", 1)
    with Wire(keeper) as first, Wire(keeper) as second:
        assert first.read() is None
        assert second.join() == {"welcome": {}}


def test_one_user_cannot_have_all_the_members(
    keeper: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bftrainer_slurm.keeper.limits.MAX_MEMBERS", 1)
    with Wire(keeper, task=1) as first, Wire(keeper, task=2) as second:
        assert first.join() == {"welcome": {}}
        assert second.join() == {"refused": "this user has too many members"}


def test_a_reader_of_the_status_too_many_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bftrainer_slurm.keeper.server.MAX_READERS_OF_ONE", 0)
    with keeper_inside() as keeper:
        with pytest.raises(KeeperError, match="ask again"):
            KeeperClient(keeper.client.address).status()
        assert keeper.registry.refusals.counts == {"too_many": 1}


@pytest.mark.parametrize(
    ("limit", "who", "kind"), [("FIRST_LINE_S", "", "mute"), ("PROOF_S", "12", "unproven")]
)
def test_who_says_nothing_is_hung_up_on(
    keeper: Inside, monkeypatch: pytest.MonkeyPatch, limit: str, who: str, kind: str
) -> None:
    monkeypatch.setattr(f"bftrainer_slurm.keeper.registry.{limit}", 0.2)
    with Wire(keeper, who=who) as wire:
        assert wire.read() is None
    assert keeper.counts() == {kind: 1}


def test_who_says_nothing_keeps_nobody_out_though_few_files_may_be_open(tmp_path: Path) -> None:
    command = shlex.join([sys.executable, "-m", "bftrainer_slurm.keeper", "--state", str(tmp_path)])
    with ExitStack() as stack:
        keeper = subprocess.Popen(["bash", "-c", f"ulimit -n 128; exec {command}"])
        stack.callback(keeper.wait)
        stack.callback(keeper.kill)
        wait_until(lambda: read_address(tmp_path))
        address = read_address(tmp_path) or ""
        silent = [socket.create_connection(parse_address(address), 10) for _ in range(300)]
        for one in silent:
            stack.enter_context(one)
        client = KeeperClient(address, read_token(tmp_path), timeout_s=30)
        client.publish({})
        assert (client.status()[1] or {})["keeper"]["refused"]["too_many"] > 200
