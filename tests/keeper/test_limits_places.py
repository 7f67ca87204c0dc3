"""How many requests are answered at the same time, in all and of one user."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.limits import Places
from bftrainer_slurm.keeper.protocol import ProtocolError
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
