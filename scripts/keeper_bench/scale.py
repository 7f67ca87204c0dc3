"""How long a keeper takes to form generations: one trainer of many agents, and many trainers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from scripts.keeper_bench.agents import Agent, all_connect, cpu_s, in_time, memory_mb
from scripts.labcluster.keeper import Keeper

LIMIT_S = 120.0  # shows a hang, not a speed
OWNER = 1001


@dataclass(frozen=True, slots=True)
class Step:
    """What was done, how long it took, and what of that was the keeper's processor time."""

    what: str
    wall_s: float
    keeper_s: float


@dataclass(frozen=True, slots=True)
class Scale:
    """What was measured with so many trainers of so many agents; memory is the keeper's."""

    trainers: int
    agents: int
    steps: tuple[Step, ...]
    idle_share: float  # of a processor, with nothing but pings
    memory_mb: float
    hung_up: int  # on agents that fell silent, as a busy machine makes them


async def measure(keeper: Keeper, key: bytes, trainers: int, agents: int) -> Scale:
    """Form all trainers' first generations, let each lose its first rank, and take it back."""
    pid = keeper.pid
    assert pid is not None
    empty_mb = memory_mb(pid)
    for array in range(1, trainers + 1):
        keeper.client.own(array, OWNER, agents)
    fleet = [Agent(array, task) for task in range(agents) for array in range(1, trainers + 1)]
    steps = []

    async def step(what: str, generation: int) -> None:
        wall_s, used_s = time.monotonic(), cpu_s(pid)
        if what == "first generation":
            for agent in fleet:
                agent.ready("new")
        elif what == "rank 0 is lost":
            for agent in [one for one in fleet if one.rank == 0]:
                fleet.remove(agent)
                agent.close()
        else:
            newcomers = [Agent(array, agents) for array in range(1, trainers + 1)]
            await all_connect(newcomers, keeper.address, key, OWNER)
            fleet.extend(newcomers)
            wall_s, used_s = time.monotonic(), cpu_s(pid)
            for agent in newcomers:
                agent.ready("new")
        await in_time((agent.until_in(generation) for agent in fleet), LIMIT_S)
        steps.append(Step(what, time.monotonic() - wall_s, cpu_s(pid) - used_s))

    wall_s, used_s = time.monotonic(), cpu_s(pid)
    await all_connect(fleet, keeper.address, key, OWNER)
    steps.append(Step("all connect", time.monotonic() - wall_s, cpu_s(pid) - used_s))
    await step("first generation", 1)
    await step("rank 0 is lost", 2)
    await step("a node joins", 3)
    used_s = cpu_s(pid)
    await asyncio.sleep(3.0)
    idle = (cpu_s(pid) - used_s) / 3.0
    taken_mb = memory_mb(pid) - empty_mb
    hung_up = sum(agent.hung_up for agent in fleet)
    for agent in fleet:
        agent.close()
    return Scale(trainers, agents, tuple(steps), idle, taken_mb, hung_up)
