"""One user floods the keeper while another's trainer rescales.

As a program, ``flood KIND HOST:PORT KEYFILE``, it is the flood, from an address of its own, until
SIGTERM. ``rescales`` measures.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bftrainer_slurm.keeper.protocol import GREETING, parse_address
from scripts.benchkit.machine import cpu_s
from scripts.keeper_bench.agents import Agent, Login, all_connect, all_in, by_job, many_files
from scripts.labcluster.keeper import Keeper
from scripts.labcluster.stage import REPO

SOURCE = "127.0.0.2"  # where the flood comes from
VICTIM, FLOODER = 1001, 1002  # users
ARRAY, FLOODERS_ARRAY = 12, 13
NODES = 4  # of the trainer that rescales
CONNECTIONS = 200  # of a flood at the same time
_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Rescales:
    """How long (seconds) until all had the next generation: after a loss, and after a join."""

    losses_s: list[float]
    joins_s: list[float]
    keeper_share: float  # of a processor, meanwhile


async def rescales(keeper: Keeper, key: bytes, repeat: int) -> Rescales:
    """Let VICTIM's trainer lose a node and get a new one, ``repeat`` times."""
    pid, loop = keeper.pid, asyncio.get_running_loop()
    assert pid is not None
    login = by_job(keeper.address, key, VICTIM)
    agents = [Agent(login, ARRAY, task) for task in range(NODES)]
    await all_connect(agents, _LIMIT_S)
    for agent in agents:
        agent.ready("new")
    await all_in(agents, 1, _LIMIT_S)
    losses_s, joins_s = list[float](), list[float]()
    first_s, used_s = loop.time(), cpu_s(pid)
    for task in range(NODES, NODES + repeat):
        lost = next(agent for agent in agents if agent.rank == NODES - 1)
        agents.remove(lost)
        before, began_s = agents[0].generation, loop.time()
        lost.close()
        await all_in(agents, before + 1, _LIMIT_S)
        losses_s.append(max(agent.at_s for agent in agents) - began_s)
        newcomer = Agent(login, ARRAY, task)
        await all_connect([newcomer], _LIMIT_S)
        agents.append(newcomer)
        began_s = loop.time()
        newcomer.ready("new")
        await all_in(agents, before + 2, _LIMIT_S)
        joins_s.append(max(agent.at_s for agent in agents) - began_s)
    share = (cpu_s(pid) - used_s) / (loop.time() - first_s)
    for agent in agents:
        agent.close()
    return Rescales(losses_s, joins_s, share)


@contextmanager
def flooded(kind: str, keeper: str, key_file: Path) -> Iterator[None]:
    """Flood the keeper in this context, from another process."""
    command = [sys.executable, "-m", __name__, kind, keeper, str(key_file)]
    flood = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=REPO,
        start_new_session=True,  # so that its processor time is not this process's
    )
    assert flood.stdout is not None
    try:
        if flood.stdout.readline() != "floods\n":
            raise ChildProcessError(f"the flood '{kind}' did not begin")
        yield
    finally:
        flood.terminate()
        flood.communicate(timeout=60)


# The floods.

_Flood = Callable[[Login], Awaitable[None]]
_tasks = itertools.count()


async def _connect(login: Login) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = parse_address(login.keeper)
    return await asyncio.open_connection(host, port, local_addr=(SOURCE, 0))


async def _joined(login: Login) -> Agent:
    agent = Agent(login, FLOODERS_ARRAY, next(_tasks), SOURCE)
    await agent.connect()
    return agent


async def _connections(login: Login) -> None:
    """Connect, send half a line or a request, and hang up."""
    _, writer = await _connect(login)
    writer.write(random.choice((b"", b"mem", b"gone 13 0 n1\n", b"status\n")))
    await asyncio.sleep(0)
    writer.transport.abort()


async def _handshakes(login: Login) -> None:
    """Begin to join, and send a false proof or no proof at all."""
    reader, writer = await _connect(login)
    writer.write(GREETING + b"\n")
    await reader.readline()
    if random.random() < 0.5:
        writer.write(b'{"hello":{"proof":"%b","identity":{"array":12,"task":1,' % (b"0" * 64))
        writer.write(b'"local_rank":0,"local_world":1,"address":""}\n')
        await reader.readline()
    else:
        await asyncio.sleep(0.5)
    writer.transport.abort()


async def _messages(login: Login) -> None:
    """Send messages as fast as the keeper takes them."""
    agent = await _joined(login)
    for number in range(1_000_000):
        agent.say(ack={"number": number})
        if number % 50 == 0:
            await agent.writer.drain()


async def _large_messages(login: Login) -> None:
    """Send messages of 60 kB."""
    agent = await _joined(login)
    for number in range(1_000_000):
        agent.ready("failed", f"{number} {'x' * 60_000}")
        await agent.writer.drain()


async def _slow_readers(login: Login) -> None:
    """Send requests, and never read an answer."""
    agent = await _joined(login)
    agent.stop_reading()
    for number in range(1_000_000):
        agent.say(ping=number)
        if number % 50 == 0:
            await agent.writer.drain()
            await asyncio.sleep(0.1)


async def _changes(login: Login) -> None:
    """Be one node of a large trainer that changes all the time: join, and be lost again."""
    agent = await _joined(login)
    agent.ready("new")
    await asyncio.sleep(random.uniform(1.0, 5.0))
    agent.close()


FLOODS: dict[str, _Flood] = {
    "connections": _connections,
    "handshakes": _handshakes,
    "messages": _messages,
    "large messages": _large_messages,
    "slow readers": _slow_readers,
    "changes": _changes,
}


async def _again(flood: _Flood, login: Login) -> None:
    while True:
        with suppress(OSError, ValueError, EOFError):
            await flood(login)


async def _flood(kind: str, login: Login) -> None:
    kinds = [FLOODS[kind]] if kind in FLOODS else list(FLOODS.values())
    floods = [
        asyncio.ensure_future(_again(flood, login))
        for flood in kinds
        for _ in range(CONNECTIONS // len(kinds))
    ]
    await asyncio.sleep(1.0)
    print("floods", flush=True)
    await asyncio.gather(*floods)


if __name__ == "__main__":
    kind, keeper, key_file = sys.argv[1:]
    with many_files():
        asyncio.run(_flood(kind, by_job(keeper, Path(key_file).read_bytes(), FLOODER)))
