"""An agent's generation waits until it reaches the first node's store, or says why it cannot."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bftrainer_slurm.elastic.rendezvous import reaching
from bftrainer_slurm.keeper.messages import Change

pytestmark = pytest.mark.torch


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_an_agent_that_cannot_reach_a_node_that_lives_says_so(
    closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaching, "_PATIENCE_S", 0.5)
    one = SimpleNamespace(change=None, connected=True)
    error = reaching.RendezvousConnectionError
    with pytest.raises(error, match=r"Connection refused\. Check that"):
        reaching.reached("127.0.0.1", closed_port, cast(Any, one))


class Patient:
    """A membership that hears of a change after many looks."""

    def __init__(self, connected: bool, looks: int = 20) -> None:
        self.connected = connected
        self._looks = looks

    @property
    def change(self) -> Change | None:
        self._looks -= 1
        return Change(planned=False, why="loss") if self._looks < 0 else None


def test_one_that_the_keeper_does_not_hear_either_waits_for_its_word(
    closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaching, "_PATIENCE_S", 0.1)
    one = Patient(connected=False)
    assert reaching.reached("127.0.0.1", closed_port, cast(Any, one)) is None


def test_an_agent_waits_for_a_store_that_it_has_reached_and_that_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node that swaps must not end the others' torchruns."""

    def answer_late(*_: object, **__: object) -> None:
        raise reaching.DistError("timed out")

    monkeypatch.setattr(reaching, "_PATIENCE_S", 0.1)
    monkeypatch.setattr(reaching.torch_private, "open_store", answer_late)
    one = Patient(connected=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert reaching.reached("127.0.0.1", port, cast(Any, one)) is None


def test_an_agent_whose_first_node_is_frozen_goes_on_when_the_keeper_has_spoken() -> None:
    """Its kernel accepts connections, and torch waits for an answer without any limit (2.13)."""
    one = Patient(connected=True, looks=3)
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        port = frozen.getsockname()[1]
        assert reaching.reached("127.0.0.1", port, cast(Any, one)) is None
