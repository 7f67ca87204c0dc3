"""Whether a node's workers failed, or the keeper had ended their generation."""

from __future__ import annotations

import threading

import pytest

pytestmark = pytest.mark.torch

pytest.importorskip("torch")

from bftrainer_slurm.elastic.rendezvous import failures  # noqa: E402
from bftrainer_slurm.elastic.rendezvous.failures import cause_of  # noqa: E402
from bftrainer_slurm.keeper.membership import Membership  # noqa: E402
from bftrainer_slurm.keeper.messages import (  # noqa: E402
    Change,
    Dropped,
    Generation,
    Identity,
    Role,
)

GENERATION = Generation(1, 0, 2, None, ())
LOSS = Change(planned=False, why="loss")
OWN = "ZeroDivisionError: division by zero"
PEERS = "RuntimeError: [gloo/transport/tcp/pair.cc] Connection closed by peer [10.0.0.2]:4711"


@pytest.fixture
def member() -> Membership:
    made = Membership("127.0.0.1:1", Identity(7, 0, "n1", Role.AGENT), b"secret")
    made._on_message(GENERATION)
    return made


def test_a_loss_that_is_told_at_once_after_the_generation_is_not_the_scripts_failure(
    member: Membership,
) -> None:
    member._on_message(LOSS)
    assert cause_of(OWN, member.over) == ("change", OWN)
    assert cause_of(PEERS, member.over) == ("change", "")
    assert cause_of(failures.UNKNOWN, member.over) == ("change", "")
    assert member.why == "loss"


def test_who_was_declared_lost_has_not_failed(member: Membership) -> None:
    member._on_message(Dropped("it has fallen silent"))
    assert cause_of(OWN, member.over) == ("change", OWN)
    assert member.why == "loss"


def test_a_failure_that_nobody_else_caused_is_the_scripts(member: Membership) -> None:
    assert cause_of(OWN, member.over) == ("failed", OWN)
    assert cause_of(PEERS, member.over) == ("failed", PEERS)


def test_a_failure_that_looks_like_a_peers_waits_for_the_keepers_word(
    member: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "_PEERS_WORD_S", 120.0)
    threading.Timer(0.1, member._on_message, (LOSS,)).start()
    assert cause_of(PEERS, member.over) == ("change", "")


def test_a_change_explains_no_failure_of_the_next_generation(member: Membership) -> None:
    member._on_message(LOSS)
    member._on_message(GENERATION)
    assert cause_of(OWN, member.over) == ("failed", OWN)
