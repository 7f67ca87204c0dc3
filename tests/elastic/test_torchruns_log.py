"""Whether a node's workers failed, or the keeper had ended their generation; what else is said."""

from __future__ import annotations

import logging
import threading

import pytest

pytestmark = pytest.mark.torch

pytest.importorskip("torch")

from bftrainer_slurm.elastic.rendezvous import torchruns_log  # noqa: E402
from bftrainer_slurm.elastic.rendezvous.torchruns_log import (  # noqa: E402
    GivenBack,
    cause_of,
)
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
    assert cause_of(torchruns_log.UNKNOWN, member.over) == ("change", "")
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
    monkeypatch.setattr(torchruns_log, "_PEERS_WORD_S", 120.0)
    threading.Timer(0.1, member._on_message, (LOSS,)).start()
    assert cause_of(PEERS, member.over) == ("change", "")


def test_a_change_explains_no_failure_of_the_next_generation(member: Membership) -> None:
    member._on_message(LOSS)
    member._on_message(GENERATION)
    assert cause_of(OWN, member.over) == ("failed", OWN)


@pytest.mark.parametrize(
    ("planned", "to"),
    [
        (True, "as the plan says"),
        (False, "to an ordinary job, unless somebody cancelled this one"),
    ],
)
def test_that_a_node_is_given_back_is_said_once_and_is_not_called_a_failure(
    planned: bool, to: str
) -> None:
    said: list[str] = []
    given_back = GivenBack("n3", said.append)
    given_back.say(planned)
    given_back.say()
    assert said == [f"n3 is given back {to}; this is no failure"]


@pytest.mark.parametrize("a_thread_is_about_to", [False, True])
def test_it_is_said_before_torchrun_says_that_it_was_signalled(a_thread_is_about_to: bool) -> None:
    said: list[str] = []
    begun, logged = threading.Event(), threading.Event()

    def tell(text: str) -> None:
        begun.set()
        logged.wait(0.2)  # torchrun's message must not come in this time
        said.append("ours")

    torchrun = logging.getLogger("torch.distributed.elastic.agent.server.api")
    given_back = GivenBack("n3", tell)
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    torchrun.addHandler(handler)
    try:
        torchrun.warning("Closing process %d", 7)
        if a_thread_is_about_to:
            threading.Thread(target=given_back.say).start()
            begun.wait()
        torchrun.warning("Received %s death signal, shutting down workers", 15)
        logged.set()
    finally:
        torchrun.removeHandler(handler)
        torchrun.removeFilter(given_back)
    assert said == ["Closing process 7", "ours", "Received 15 death signal, shutting down workers"]
