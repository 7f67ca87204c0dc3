"""A thousand agents at one keeper: what they cost it idle, and what a change of a hundred does."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import time
from collections import Counter
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from bftrainer_slurm.keeper.credentials import SECRET, SECRET_FILE, Prove, prover_from, seals
from bftrainer_slurm.keeper.home import own_secret
from bftrainer_slurm.keeper.messages import Hello, Identity, Role, encode, payload
from bftrainer_slurm.keeper.protocol import GREETING, parse_address
from scripts.labcluster.keeper import Keeper

pytestmark = [pytest.mark.torch, pytest.mark.load]

TRAINERS = 10
AGENTS = 100  # of each trainer
BOUND_S = 30.0  # shows a hang, not a speed


class Agent:
    """One connection, driven by the test's only event loop."""

    def __init__(self, array: int, task: int) -> None:
        self.identity = Identity(array, task, f"n{task}", Role.AGENT, address="10.0.0.1")
        self.heard: Counter[str] = Counter()
        self.generation = 0
        self.rank = -1
        self._news = asyncio.Event()

    async def connect(self, keeper: str, prove: Prove) -> None:
        while not await self._welcomed(keeper, prove):
            self.writer.close()  # and try again, as agents do
        self._tasks = [asyncio.ensure_future(work()) for work in (self._listen, self._ping)]

    async def _welcomed(self, keeper: str, prove: Prove) -> bool:
        """Prove itself; False where the keeper hung up: on a busy machine this process is slow."""
        host, port = parse_address(keeper)
        self.reader, self.writer = await asyncio.open_connection(host, port, limit=2**20)
        self.writer.write(GREETING + b"\n")
        if not (challenge := await self.reader.readline()):
            return False
        hello = Hello("", self.identity)
        proof = prove(payload(json.loads(challenge)["challenge"], hello), SECRET)
        self.writer.write(encode(replace(hello, proof=proof.text)))
        self.keepers_seal, self.own_seal = seals(proof.key)
        if not (answer := await self.reader.readline()):
            return False
        assert "welcome" in json.loads(self.keepers_seal.open(answer))
        return True

    def say(self, **message: object) -> None:
        self.writer.write(self.own_seal.close(json.dumps(message).encode() + b"\n"))

    def ready(self, cause: str) -> None:
        self.say(ready={"step": -1, "cause": cause, "error": ""})

    async def until(self, kind: str, count: int = 1) -> None:
        while self.heard[kind] < count:
            self._news.clear()
            await self._news.wait()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self.writer.close()

    async def _listen(self) -> None:
        while line := await self.reader.readline():
            message = json.loads(self.keepers_seal.open(line))
            self.heard[next(iter(message))] += 1
            self._news.set()
            if "change" in message:
                self.ready("change")
            if "generation" in message:
                self.generation = message["generation"]["number"]
                self.rank = message["generation"]["rank"]
                if self.rank == 0:
                    self.say(store="10.0.0.1:4321", generation=self.generation)

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self.say(ping=1)


async def in_time(waits: Iterable[Awaitable[None]]) -> None:
    await asyncio.wait_for(asyncio.gather(*waits), BOUND_S)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def test_a_change_of_a_hundred_among_a_thousand(keeper: Keeper) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        asyncio.run(_change(keeper))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def _change(keeper: Keeper) -> None:
    prove = prover_from({SECRET_FILE: str(own_secret(keeper.state))})
    empty_mb = memory_mb(keeper.pid)
    agents = [Agent(array, task) for array in range(1, TRAINERS + 1) for task in range(AGENTS)]
    for array in range(1, TRAINERS + 1):
        keeper.client.own(array, os.getuid(), AGENTS)
    began = time.monotonic(), cpu_s(keeper.pid)
    # Not all at once: who takes long to prove itself is hung up on, and this is but one process.
    for begin in range(0, len(agents), AGENTS):
        batch = agents[begin : begin + AGENTS]
        await in_time(agent.connect(keeper.client.address, prove) for agent in batch)
    for agent in agents:
        agent.ready("new")
    await in_time(agent.until("generation") for agent in agents)
    _report("1,000 join ten groups", keeper, began)

    began = time.monotonic(), cpu_s(keeper.pid)
    await asyncio.sleep(5.0)
    _report("1,000 idle for 5 s", keeper, began)

    group = [agent for agent in agents if agent.identity.array == 1]
    lost = next(agent for agent in group if agent.rank == 0)
    survivors = [agent for agent in group if agent is not lost]
    began = time.monotonic(), cpu_s(keeper.pid)
    lost.close()
    await in_time(agent.until("generation", 2) for agent in survivors)
    _report("a change of 100", keeper, began)
    print(f"memory: {memory_mb(keeper.pid) - empty_mb:.1f} MB for 1,000 members")

    assert {agent.generation for agent in survivors} == {2}
    assert sorted(agent.rank for agent in survivors) == list(range(AGENTS - 1))
    others = [agent for agent in agents if agent.identity.array != 1]
    assert not any(agent.heard["change"] for agent in others)
    for agent in (*survivors, *others):
        agent.close()


def _report(what: str, keeper: Keeper, began: tuple[float, float]) -> None:
    wall_s, used_s = time.monotonic() - began[0], cpu_s(keeper.pid) - began[1]
    print(f"{what}: {wall_s:.3f} s, of it keeper CPU {used_s:.3f} s")
    assert used_s < BOUND_S
