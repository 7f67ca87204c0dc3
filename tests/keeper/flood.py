"""A flood of a keeper by one user, from an address of its own: ``flood HOST:PORT``, until SIGTERM.

The trainer's secret is in the environment. All kinds of floods go on at once.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

from bftrainer_slurm.keeper.credentials import JOB_SECRET, new_nonce
from bftrainer_slurm.keeper.protocol import VERSION, parse_address
from tests.keeper.agents import Agent, many_files

ARRAY = 13
SOURCE = "127.0.0.2"  # where the flood comes from
OF_EACH_KIND = 33  # connections at the same time
_tasks = itertools.count()


async def _connect(keeper: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(*parse_address(keeper), local_addr=(SOURCE, 0))


async def _joined(keeper: str) -> Agent:
    agent = Agent(keeper, os.environ[JOB_SECRET].encode(), ARRAY, next(_tasks), SOURCE)
    await agent.connect()
    return agent


async def connections(keeper: str) -> None:
    """Connect, send half a line or a request, and hang up."""
    _, writer = await _connect(keeper)
    writer.write(random.choice((b"", b"hel", b"gone 13 0 n1\n", b"status\n")))
    await asyncio.sleep(0)
    writer.transport.abort()


async def handshakes(keeper: str) -> None:
    """Begin to join, and send half an answer or none."""
    reader, writer = await _connect(keeper)
    writer.write(f"hello {VERSION} {ARRAY} {new_nonce()}\n".encode())
    await reader.readline()
    if random.random() < 0.5:
        writer.write(b"proof %b\n" % (b"0" * 64))
        await reader.readline()
    else:
        await asyncio.sleep(0.5)
    writer.transport.abort()


async def messages(keeper: str) -> None:
    """Send messages as fast as the keeper takes them."""
    agent = await _joined(keeper)
    for number in range(1_000_000):
        agent.say(ping={"number": number})
        if number % 50 == 0:
            await agent.writer.drain()


async def large_messages(keeper: str) -> None:
    """Send messages of 60 kB."""
    agent = await _joined(keeper)
    for number in range(1_000_000):
        agent.ready("failed", f"{number} {'x' * 60_000}")
        await agent.writer.drain()


async def slow_readers(keeper: str) -> None:
    """Send requests, and never read an answer."""
    agent = await _joined(keeper)
    agent.stop_reading()
    for number in range(1_000_000):
        agent.say(ping={"number": number})
        if number % 50 == 0:
            await agent.writer.drain()
            await asyncio.sleep(0.1)


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
    kinds = (connections, handshakes, messages, large_messages, slow_readers, changes)
    floods = [
        asyncio.ensure_future(_again(kind, keeper)) for kind in kinds for _ in range(OF_EACH_KIND)
    ]
    await asyncio.sleep(1.0)
    print("floods", flush=True)
    await asyncio.gather(*floods)


if __name__ == "__main__":
    with many_files():
        asyncio.run(_flood(sys.argv[1]))
