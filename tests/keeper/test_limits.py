"""How much one user, or a stranger, may ask of the keeper, and for how long."""

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
    to_evict,
)
from bftrainer_slurm.keeper.protocol import ProtocolError, parse_address
from scripts.labcluster.waiting import wait_until
from tests.keeper.inside import Inside, keeper_inside
from tests.keeper.wire import Wire


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


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch, keeper: Inside) -> Inside:
    monkeypatch.setattr(keeper.registry, "_most_unproven", 2)
    monkeypatch.setattr("bftrainer_slurm.keeper.limits.MAX_MEMBERS", 2)
    return keeper


def test_of_too_many_strangers_the_first_has_to_go(narrow: Inside) -> None:
    with Wire(narrow) as first, Wire(narrow) as second, Wire(narrow) as third:
        assert first.read() is None
        for honest in (second, third):
            assert "welcome" in (honest.join() or {})


def test_who_says_nothing_keeps_nobody_out(narrow: Inside) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(Wire(narrow, who="")) for _ in range(5)]
        with Wire(narrow) as honest:
            assert "welcome" in (honest.join() or {})
        assert silent[0].read() is None
    assert narrow.counts()["too_many"] >= 3


def test_one_user_cannot_have_all_the_members(narrow: Inside) -> None:
    with ExitStack() as stack:
        for task in (1, 2):
            assert "welcome" in (stack.enter_context(Wire(narrow, task=task)).join() or {})
        last = stack.enter_context(Wire(narrow, task=3))
        assert last.join() == {"refused": "this user has too many members"}


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


def test_where_few_files_may_be_open_silence_keeps_nobody_out_either(tmp_path: Path) -> None:
    command = shlex.join([sys.executable, "-m", "bftrainer_slurm.keeper", "--state", str(tmp_path)])
    with ExitStack() as stack:
        keeper = subprocess.Popen(["bash", "-c", f"ulimit -n 128; exec {command}"])
        stack.callback(keeper.wait)
        stack.callback(keeper.kill)
        wait_until(lambda: read_address(tmp_path))
        address = read_address(tmp_path) or ""
        for _ in range(300):
            stack.enter_context(socket.create_connection(parse_address(address), 10))
        status = KeeperClient(address, timeout_s=30).status()[1]
        assert status is None, "an answer: there is none yet"
