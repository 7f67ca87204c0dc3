"""Who is believed, and by whom: each side proves that it knows the trainer's secret."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.credentials import Gate, challenge, secret_of_job
from bftrainer_slurm.keeper.messages import Generation, Peer, Welcome, encode
from scripts.labcluster.waiting import wait_until
from tests.keeper.inside import KEY, TOKEN, Inside, keeper_inside, secret_for, together
from tests.keeper.wire import Wire

ALICE, BOB = 1001, 1002
SECRET = secret_for(12, ALICE)


@pytest.fixture
def keeper() -> Iterator[Inside]:
    """A keeper of several users' trainers."""
    with keeper_inside(Gate(TOKEN, KEY)) as running:
        yield running


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [one.getMessage() for one in caplog.records]
    return [one for one in said if "no connection" in one]


def test_before_the_owner_is_known_members_wait(
    keeper: Inside, caplog: pytest.LogCaptureFixture
) -> None:
    early = keeper.member(1, SECRET)
    wait_until(lambda: "owner_unknown" in keeper.counts())
    with pytest.raises(KeeperError, match="whose trainer 12 is, is not known yet"):
        keeper.client.join(12, 1, "n1", SECRET)
    keeper.client.own(12, ALICE, 1)
    assert together([early])[0].world == 1
    assert keeper.client.join(12, 1, "n1", SECRET) == ("12.1", False)
    (said,) = complaints(caplog)
    assert said.endswith("whose trainer 12 is, is not known yet")


@pytest.mark.parametrize(
    "secret",
    [
        pytest.param(secret_for(13, ALICE), id="of another trainer of the same user"),
        pytest.param(secret_for(12, BOB), id="of another user's array of that number"),
        pytest.param(secret_of_job(b"another key of the site", 12, ALICE), id="of another key"),
        pytest.param(b"", id="none"),
    ],
)
def test_another_secret_opens_nothing_and_its_holder_says_so_once(
    keeper: Inside, secret: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    keeper.client.own(12, ALICE, 1)
    stranger = keeper.member(1, secret)
    stranger.ready("new")
    with pytest.raises(TimeoutError):
        stranger.wait_generation(2)
    (said,) = complaints(caplog)
    assert said.endswith(("has another key than this process", "to prove who this is"))


def test_the_token_is_no_trainers_secret_and_the_other_way_round(keeper: Inside) -> None:
    keeper.client.own(12, ALICE, 1)
    with pytest.raises(KeeperError, match="another key"):
        keeper.client.join(12, 1, "n1", TOKEN.encode())
    with pytest.raises(KeeperError, match="another key"):
        KeeperClient(keeper.client.address, SECRET.decode()).own(12, BOB, 1)


Answer = Callable[[str, str], bytes]


@contextmanager
def impostor(answer: Answer) -> Iterator[tuple[str, list[bytes]]]:
    """Who listens on a dead keeper's port, and answers WHO and NONCE; what it has heard."""
    heard = list[bytes]()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            heard.append(self.rfile.readline())
            _, _, who, nonce = heard[-1].decode().split()
            self.wfile.write(answer(who, nonce))
            generation = Generation(1, 0, 1, None, (Peer(1, "n1"),))
            self.wfile.write(encode(Welcome()) + encode(generation))
            while line := self.rfile.readline():
                heard.append(line)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as listener:
        listener.daemon_threads = True
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{listener.server_address[1]}", heard
        finally:
            listener.shutdown()


IMPOSTORS: dict[str, Answer] = {
    "another key": lambda who, nonce: challenge(b"another secret of bytes", who, nonce)[0],
    "for another trainer": lambda who, nonce: challenge(SECRET, "13", nonce)[0],
    "nothing": lambda who, nonce: b"",
    "no proof": lambda who, nonce: f"challenge {nonce}\n".encode(),
    "no ascii": lambda who, nonce: b"challenge %b \xc3\xa9\n" % nonce.encode(),
    "an old keeper": lambda who, nonce: b"error not a request that the keeper knows\n",
}


@pytest.mark.parametrize("kind", [*IMPOSTORS, "a replay"])
def test_who_poses_as_the_keeper_gets_no_token_and_nobody_obeys_it(
    keeper: Inside, kind: str
) -> None:
    keeper.client.own(12, ALICE, 1)

    def replay(who: str, nonce: str) -> bytes:
        """Answer as the keeper has answered another connection."""
        with Wire(keeper, who=who) as wire:
            return f"{' '.join(wire.challenge)}\n".encode()

    with impostor(IMPOSTORS.get(kind, replay)) as (address, heard):
        deceived = keeper.member(1, SECRET, at=address)
        deceived.ready("new")
        with pytest.raises(TimeoutError):
            deceived.wait_generation(1)
        with pytest.raises(KeeperError):
            KeeperClient(address, TOKEN).own(12, ALICE, 1)
        with pytest.raises(KeeperError):
            KeeperClient(address).join(12, 1, "n1", SECRET)
        deceived.close()
    assert len(heard) < 50, "there is a pause between two tries"
    said = b"".join(heard)
    assert not any(secret in said for secret in (b"proof", TOKEN.encode(), SECRET))


def test_what_a_keeper_of_another_version_says_is_in_the_members_log(
    keeper: Inside, caplog: pytest.LogCaptureFixture
) -> None:
    with impostor(lambda who, nonce: b"refused it speaks version 12: install one\x1b[m\n") as it:
        keeper.member(1, SECRET, at=it[0])
        wait_until(lambda: "it speaks version 12: install one?[m" in caplog.text)
