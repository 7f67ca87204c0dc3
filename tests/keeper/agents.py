"""Simulated agents on one event loop: real connections and messages, but no training."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bftrainer_slurm.keeper.credentials import new_nonce, proof
from bftrainer_slurm.keeper.messages import Identity, Join, Role, encode
from bftrainer_slurm.keeper.protocol import VERSION, parse_address

_AT_ONCE = 100  # agents connect at the same time, as all of them are in one process


class Agent:
    """One agent of a trainer; it follows each change, and reconnects if the keeper hangs up.

    ``keeper`` is HOST:PORT; ``source`` is the address from which it connects.
    """

    def __init__(
        self, keeper: str, secret: bytes, array: int, task: int, source: str = "127.0.0.1"
    ) -> None:
        self.identity = Identity(array, task, f"n{task}", Role.AGENT)
        self.changes = 0  # of which it was told
        self.generation = 0
        self.rank = -1
        self.at_s = 0.0  # when the last generation came
        self._keeper, self._secret, self._source = keeper, secret, source
        self._news = asyncio.Event()

    async def connect(self) -> None:
        """Connect, again and again until the keeper welcomes it."""
        while not await self._welcomed():
            self.writer.close()
        self._tasks = [asyncio.ensure_future(work()) for work in (self._listen, self._ping)]

    async def _welcomed(self) -> bool:
        """Prove itself; False if the keeper hung up, as this process is slow on a busy machine."""
        host, port = parse_address(self._keeper)
        self.reader, self.writer = await asyncio.open_connection(
            host, port, limit=2**20, local_addr=(self._source, 0)
        )
        who, nonce = str(self.identity.array), new_nonce()
        self.writer.write(f"hello {VERSION} {who} {nonce}\n".encode())
        if not (line := await self._next_line()).startswith(b"challenge "):
            return False
        proven = proof(self._secret, "client", who, nonce, line.decode().split()[1])
        self.writer.write(f"proof {proven}\n".encode() + encode(Join(self.identity)))
        return b'"welcome"' in await self._next_line()

    async def _next_line(self) -> bytes:
        """Return the keeper's next line; empty: it hung up, or reset the connection."""
        try:
            return await self.reader.readline()
        except ConnectionError:
            return b""

    def say(self, **message: object) -> None:
        self.writer.write(json.dumps(message).encode() + b"\n")

    def ready(self, cause: str, error: str = "") -> None:
        self.say(ready={"cause": cause, "error": error})

    async def until_in(self, generation: int) -> None:
        """Wait for this generation, or a later one."""
        while self.generation < generation:
            self._news.clear()
            await self._news.wait()

    def stop_reading(self) -> None:
        self._tasks[0].cancel()
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]

    def close(self) -> None:
        """End the connection, as a killed node does."""
        for task in self._tasks:
            task.cancel()
        self.writer.transport.abort()

    async def _listen(self) -> None:
        while line := await self._next_line():
            ((kind, fields),) = json.loads(line).items()
            if kind == "generation":
                self._enter(fields)
            elif kind == "change":
                self.changes += 1
                self.ready("change")
            self._news.set()
        self._tasks[1].cancel()
        self.writer.close()
        await self.connect()
        self.ready("new")

    def _enter(self, generation: dict[str, int]) -> None:
        self.at_s = asyncio.get_running_loop().time()
        self.generation, self.rank = generation["number"], generation["rank"]
        if self.rank == 0:
            self.say(storeat={"endpoint": "10.0.0.1:4321", "generation": self.generation})

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self.say(ping={"number": 1})


async def all_connect(agents: Sequence[Agent], limit_s: float) -> None:
    """Connect agents, some of them at a time. Raises TimeoutError."""
    for begin in range(0, len(agents), _AT_ONCE):
        batch = asyncio.gather(*(one.connect() for one in agents[begin : begin + _AT_ONCE]))
        await asyncio.wait_for(batch, limit_s)


async def all_in(agents: Sequence[Agent], generation: int, limit_s: float) -> None:
    """Wait until all have this generation. Raises TimeoutError."""
    await asyncio.wait_for(asyncio.gather(*(one.until_in(generation) for one in agents)), limit_s)


@contextmanager
def many_files() -> Iterator[None]:
    """Allow this process as many connections as it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
