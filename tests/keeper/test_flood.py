"""One user's flood while another's trainer rescales, and a change among a thousand members."""

from __future__ import annotations

import itertools
import logging
import os
import random
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from select import select

import pytest

from bftrainer_slurm.keeper.credentials import (
    CredentialError,
    Means,
    introduce,
    new_nonce,
    secret_of_job,
)
from bftrainer_slurm.keeper.membership import Membership
from bftrainer_slurm.keeper.messages import Identity, Join, Ping, Ready, Role, encode
from bftrainer_slurm.keeper.protocol import VERSION, parse_address
from scripts.labcluster.keeper import Keeper, started_keeper
from scripts.labcluster.waiting import wait_until
from tests.keeper.inside import together

VICTIM, FLOODER = 1001, 1002  # users
ARRAY, FLOODING, NODES = 12, 13, 4  # the victim's trainer, the other's
SOURCE = "127.0.0.2"  # where the flood comes from
OF_EACH_KIND = 33  # connections at the same time
STARVED_S = 30.0
_tasks = itertools.count()


def member(keeper: str, secret: bytes, array: int, task: int) -> Membership:
    found = Membership(keeper, Identity(array, task, f"n{task}", Role.AGENT), secret)
    found.start()
    return found


def change(members: list[Membership]) -> list[int]:
    """Let members do what they are told, as one was lost or is new; return their ranks."""
    wait_until(lambda: all(one.change for one in members))
    return [one.rank for one in together(members, "change")]


def test_a_flood_of_all_kinds_starves_nobody_else(tmp_path: Path) -> None:
    key = tmp_path / "site.key"
    key.touch(mode=0o600)
    key.write_text(os.urandom(32).hex())
    secrets = [
        secret_of_job(key.read_bytes(), *of) for of in ((ARRAY, VICTIM), (FLOODING, FLOODER))
    ]
    with started_keeper(tmp_path, Means(key)) as keeper:
        keeper.client.own(ARRAY, VICTIM, NODES)
        keeper.client.own(FLOODING, FLOODER, 256)
        keeper.client.publish({})
        with flooded(keeper.address, secrets[1]):
            took_s = rescales(partial(member, keeper.address, secrets[0], ARRAY), 10)
            refused = keeper.status()["keeper"]["refused"]
    print(f"rescales took {', '.join(f'{1e3 * one:.0f}' for one in took_s)} ms; {refused}")
    assert max(took_s) < STARVED_S
    assert refused["flood"] > 0


def rescales(begin: partial[Membership], repeat: int) -> list[float]:
    """Let a trainer lose a node and get a new one; return how long (s) each took for all of it."""
    members = [begin(task) for task in range(NODES)]
    together(members)
    took_s = [time.monotonic()]
    for task in range(NODES, NODES + repeat):
        members.pop(0).close()
        change(members)
        newcomer = begin(task)
        newcomer.ready("new")
        change(members)
        newcomer.wait_generation(120)
        members.append(newcomer)
        took_s.append(time.monotonic())
    for one in members:
        one.close()
    return [after - before for before, after in itertools.pairwise(took_s)]


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.torch
@pytest.mark.load
def test_a_change_of_a_hundred_among_a_thousand_concerns_nobody_else(
    keeper_process: Keeper, many_files: None
) -> None:
    trainers = []
    for array in range(1, 11):
        keeper_process.client.own(array, os.getuid(), 100)
        secret = keeper_process.secret(array)
        trainers.append([member(keeper_process.address, secret, array, at) for at in range(100)])
        wait_until(lambda: all(one.connected for one in trainers[-1]))
        assert {one.world for one in together(trainers[-1])} == {100}
    (lost, *survivors), *others = trainers
    lost.close()
    assert sorted(change(survivors)) == [*range(99)]
    assert not any(one.change for members in others for one in members)
    for one in itertools.chain(survivors, *others):
        one.close()


@contextmanager
def flooded(keeper: str, secret: bytes) -> Iterator[None]:
    """Flood the keeper in this context, from another process."""
    context = get_context("spawn")
    begun = context.Event()
    process = context.Process(target=_flood, args=(keeper, secret, begun))
    process.start()
    try:
        assert begun.wait(120), "the flood did not begin"
        yield
    finally:
        process.kill()
        process.join()


# The floods. Each goes on from its beginning when it has ended.


def connected(keeper: str) -> socket.socket:
    return socket.create_connection(parse_address(keeper), 20, (SOURCE, 0))


def connections(keeper: str, secret: bytes) -> None:
    """Connect, send half a line or a request, and hang up."""
    with connected(keeper) as one:
        one.sendall(random.choice((b"", b"hel", b"gone 13 0 n1\n", b"status\n")))


def handshakes(keeper: str, secret: bytes) -> None:
    """Begin to join, and send half an answer or none."""
    with connected(keeper) as one:
        one.sendall(f"hello {VERSION} {FLOODING} {new_nonce()}\n".encode())
        one.recv(1_024)
        if random.random() < 0.5:
            one.sendall(b"proof %b\n" % (b"0" * 64))
            one.recv(1_024)
        else:
            time.sleep(0.5)


def messages(keeper: str, secret: bytes, large: bool = False, reads: bool = True) -> None:
    """Send far more messages than anybody may, and read the answers, or never."""
    who = Identity(FLOODING, next(_tasks), "n1", Role.AGENT)
    with connected(keeper) as one:
        introduce(one, str(FLOODING), secret, encode(Join(who)), 20)
        one.settimeout(20)
        for number in range(20_000):
            long = f"{number} {'x' * 60_000}"
            one.sendall(encode(Ready("failed", long)) if large else encode(Ping(number)) * 50)
            if reads and select([one], [], [], 0)[0]:
                one.recv(65_536)
            time.sleep(0.02 if reads else 0.1)


def changes(keeper: str, secret: bytes) -> None:
    """Be one node of a trainer that changes all the time: join, and be lost again."""
    one = member(keeper, secret, FLOODING, next(_tasks))
    one.ready("new")
    time.sleep(random.uniform(1.0, 5.0))
    one.close()


def _again(flood: Callable[[str, bytes], None], keeper: str, secret: bytes) -> None:
    while True:
        with suppress(OSError, CredentialError):
            flood(keeper, secret)


def _flood(keeper: str, secret: bytes, begun: Event) -> None:
    logging.disable()
    large, slow = partial(messages, large=True), partial(messages, reads=False)
    for kind in (connections, handshakes, messages, large, slow, changes) * OF_EACH_KIND:
        threading.Thread(target=_again, args=(kind, keeper, secret), daemon=True).start()
    time.sleep(1.0)
    begun.set()
    signal.pause()
