"""Whether a node's workers failed, or the keeper had ended their generation."""

from __future__ import annotations

import threading

import pytest

pytestmark = pytest.mark.torch

pytest.importorskip("torch")

from bftrainer_slurm.elastic.rendezvous.last_failure import Ending  # noqa: E402
from bftrainer_slurm.keeper.messages import Change, Dropped, Generation  # noqa: E402

GENERATION = Generation(1, 0, 2, False, None, ())
LOSS = Change(1, planned=False, why="loss")
OWN = "ZeroDivisionError: division by zero"
PEERS = "RuntimeError: [gloo/transport/tcp/pair.cc] Connection closed by peer [10.0.0.2]:4711"


@pytest.fixture
def ending() -> Ending:
    made = Ending()
    made.hear(GENERATION)
    return made


def test_a_loss_that_is_told_at_once_after_the_generation_is_not_the_scripts_failure(
    ending: Ending,
) -> None:
    ending.hear(LOSS)
    assert ending.cause(OWN) == ("change", "")
    assert ending.why == "loss"


def test_who_was_declared_lost_has_not_failed(ending: Ending) -> None:
    ending.hear(Dropped("it has fallen silent"))
    assert ending.cause(OWN) == ("change", "")
    assert ending.why == "loss"


def test_a_failure_that_nobody_else_caused_is_the_scripts(ending: Ending) -> None:
    assert ending.cause(OWN) == ("failed", OWN)
    assert ending.cause(PEERS) == ("failed", PEERS)


def test_a_failure_that_looks_like_a_peers_waits_for_the_keepers_word(ending: Ending) -> None:
    threading.Timer(0.1, ending.hear, (LOSS,)).start()
    assert ending.cause(PEERS) == ("change", "")


def test_a_change_explains_no_failure_of_the_next_generation(ending: Ending) -> None:
    ending.hear(LOSS)
    ending.hear(GENERATION)
    assert ending.cause(OWN) == ("failed", OWN)
