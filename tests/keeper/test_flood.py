"""Many agents at one keeper, and one user's flood while another's trainer rescales.

``python -m tests.keeper.test_flood HOST:PORT`` floods it from an address of its own, until SIGTERM,
with the trainer's secret in the environment. All kinds of floods go on at once.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from bftrainer_slurm.keeper.credentials import JOB_SECRET, Means, new_nonce, secret_of_job
from bftrainer_slurm.keeper.protocol import VERSION, parse_address
from scripts.labcluster.keeper import Keeper, started_keeper
from scripts.labcluster.stage import REPO
from tests.keeper.agents import Agent, all_connect, all_in, many_files

VICTIM, FLOODER = 1001, 1002  # users
ARRAY, FLOODING, NODES = 12, 13, 4  # the victim's trainer, the other's
SOURCE = "127.0.0.2"  # where the flood comes from
OF_EACH_KIND = 33  # connections at the same time
STARVED_S, HANGS_S = 30.0, 120.0
_tasks = itertools.count()


def test_a_flood_of_all_kinds_starves_nobody_else(tmp_path: Path) -> None:
    key = tmp_path / "site.key"
    key.touch(mode=0o600)
    key.write_text(os.urandom(32).hex())
    with many_files(), started_keeper(tmp_path, Means(key)) as keeper:
        keeper.client.own(ARRAY, VICTIM, NODES)
        keeper.client.own(FLOODING, FLOODER, 256)
        keeper.client.publish({})
        with flooded(keeper, secret_of_job(key.read_bytes(), FLOODING, FLOODER)):
            secret = secret_of_job(key.read_bytes(), ARRAY, VICTIM)
            took_s = asyncio.run(rescales(keeper, secret, 10))
            refused = keeper.status()["keeper"]["refused"]
    print(f"rescales took {', '.join(f'{1e3 * one:.0f}' for one in took_s)} ms; {refused}")
    assert max(took_s) < STARVED_S
    assert refused["flood"] > 0


async def rescales(keeper: Keeper, secret: bytes, repeat: int) -> list[float]:
    """Let a trainer lose a node and get a new one; return how long (s) each took for all of it."""
    took_s = list[float]()
    agents = [Agent(keeper.address, secret, ARRAY, task) for task in range(NODES)]

    async def change(newcomers: list[Agent], generation: int) -> None:
        began_s = asyncio.get_running_loop().time()
        await all_connect(newcomers, HANGS_S)
        for agent in newcomers:
            agent.ready("new")
        await all_in(agents, generation, HANGS_S)
        took_s.append(max(agent.at_s for agent in agents) - began_s)

    await change(agents, 1)
    for task in range(NODES, NODES + repeat):
        lost = next(agent for agent in agents if agent.rank == NODES - 1)
        agents.remove(lost)
        lost.close()
        before = agents[0].generation
        await change([], before + 1)
        agents.append(Agent(keeper.address, secret, ARRAY, task))
        await change(agents[-1:], before + 2)
    for agent in agents:
        agent.close()
    return took_s[1:]


@pytest.mark.torch
@pytest.mark.load
def test_a_change_of_a_hundred_among_a_thousand_concerns_nobody_else(
    keeper_process: Keeper,
) -> None:
    with many_files():
        asyncio.run(a_thousand(keeper_process))


async def a_thousand(keeper: Keeper) -> None:
    """Ten trainers have a hundred agents each; one of them loses its rank 0."""
    arrays = range(1, 11)
    agents = [
        Agent(keeper.address, keeper.secret(array), array, task)
        for array in arrays
        for task in range(100)
    ]
    for array in arrays:
        keeper.client.own(array, os.getuid(), 100)
    await all_connect(agents, HANGS_S)
    for agent in agents:
        agent.ready("new")
    await all_in(agents, 1, HANGS_S)
    lost = next(agent for agent in agents[:100] if agent.rank == 0)
    survivors = [agent for agent in agents[:100] if agent is not lost]
    lost.close()
    await all_in(survivors, 2, HANGS_S)
    assert {agent.generation for agent in survivors} == {2}
    assert {agent.rank for agent in survivors} == {*range(99)}
    assert not any(agent.changes for agent in agents[100:])
    for agent in agents:
        agent.close()


@contextmanager
def flooded(keeper: Keeper, secret: bytes) -> Iterator[None]:
    """Flood the keeper in this context, from another process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.keeper.test_flood", keeper.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=REPO,
        env=os.environ | {JOB_SECRET: secret.decode()},
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "floods\n", "the flood did not begin"
        yield
    finally:
        process.terminate()
        process.communicate(timeout=60)


# The floods. Each goes on from its beginning when it has ended.


async def connections(keeper: str) -> None:
    """Connect, send half a line or a request, and hang up."""
    _, writer = await asyncio.open_connection(*parse_address(keeper), local_addr=(SOURCE, 0))
    writer.write(random.choice((b"", b"hel", b"gone 13 0 n1\n", b"status\n")))
    await asyncio.sleep(0)
    writer.transport.abort()


async def handshakes(keeper: str) -> None:
    """Begin to join, and send half an answer or none."""
    reader, writer = await asyncio.open_connection(*parse_address(keeper), local_addr=(SOURCE, 0))
    writer.write(f"hello {VERSION} {FLOODING} {new_nonce()}\n".encode())
    await reader.readline()
    if random.random() < 0.5:
        writer.write(b"proof %b\n" % (b"0" * 64))
        await reader.readline()
    else:
        await asyncio.sleep(0.5)
    writer.transport.abort()


async def _joined(keeper: str) -> Agent:
    agent = Agent(keeper, os.environ[JOB_SECRET].encode(), FLOODING, next(_tasks), SOURCE)
    await agent.connect()
    return agent


async def messages(keeper: str, large: bool = False, reads: bool = True) -> None:
    """Send messages as fast as the keeper takes them, and read its answers, or never."""
    agent = await _joined(keeper)
    if not reads:
        agent.stop_reading()
    for number in range(1_000_000):
        if large:
            agent.ready("failed", f"{number} {'x' * 60_000}")
        else:
            agent.say(ping={"number": number})
        if large or number % 50 == 0:
            await agent.writer.drain()
            await asyncio.sleep(0.0 if reads else 0.1)


async def changes(keeper: str) -> None:
    """Be one node of a trainer that changes all the time: join, and be lost again."""
    agent = await _joined(keeper)
    agent.ready("new")
    await asyncio.sleep(random.uniform(1.0, 5.0))
    agent.close()


async def _again(flood: Callable[[str], Awaitable[None]], keeper: str) -> None:
    while True:
        with suppress(OSError, ValueError, EOFError):
            await flood(keeper)


async def _flood(keeper: str) -> None:
    large, slow = partial(messages, large=True), partial(messages, reads=False)
    kinds = (connections, handshakes, messages, large, slow, changes)
    floods = [_again(kind, keeper) for kind in kinds for _ in range(OF_EACH_KIND)]
    asyncio.get_running_loop().call_later(1.0, lambda: print("floods", flush=True))
    await asyncio.gather(*floods)


if __name__ == "__main__":
    with many_files():
        asyncio.run(_flood(sys.argv[1]))
