"""Whether a node's workers failed, or the keeper had ended their generation."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from bftrainer_slurm.elastic.rendezvous import failures
from bftrainer_slurm.elastic.rendezvous.failures import cause_of
from bftrainer_slurm.keeper.membership import Membership
from bftrainer_slurm.keeper.messages import Change, Dropped, Generation, Identity, Role

pytestmark = pytest.mark.torch

GENERATION = Generation(1, 0, 2, None, ())
LOSS = Change(planned=False, why="loss")
OWN = "ZeroDivisionError: division by zero"
PEERS = "RuntimeError: [gloo/transport/tcp/pair.cc] Connection closed by peer [10.0.0.2]:4711"
LOST = Dropped("it has fallen silent")


def member(heard: list[Any]) -> Membership:
    """One that has heard all this."""
    made = Membership("127.0.0.1:1", Identity(7, 0, "n1", Role.AGENT), b"secret")
    for message in heard:
        made._on_message(message)
    return made


@pytest.mark.parametrize(
    ("heard", "error", "cause"),
    [
        ([GENERATION], OWN, ("failed", OWN)),
        ([GENERATION], PEERS, ("failed", PEERS)),
        ([GENERATION, LOSS], OWN, ("change", OWN)),
        ([GENERATION, LOSS], PEERS, ("change", "")),
        ([GENERATION, LOSS], failures.UNKNOWN, ("change", "")),
        ([GENERATION, LOST], OWN, ("change", OWN)),
        ([GENERATION, LOSS, GENERATION], OWN, ("failed", OWN)),
    ],
    ids=[
        *("nobody else caused it", "it looks like a peer's", "a loss is told at once after"),
        *("a peer's", "of an unknown cause", "it was declared lost", "in the next generation"),
    ],
)
def test_a_failure_is_the_scripts_unless_the_keeper_has_ended_its_generation(
    heard: list[Any], error: str, cause: tuple[str, str]
) -> None:
    told = member(heard)
    assert cause_of(error, told.over) == cause
    assert told.why == ("loss" if len(heard) > 1 else "")


def test_a_failure_that_looks_like_a_peers_waits_for_the_keepers_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failures, "_PEERS_WORD_S", 120.0)
    told = member([GENERATION])
    threading.Timer(0.1, told._on_message, (LOSS,)).start()
    assert cause_of(PEERS, told.over) == ("change", "")
