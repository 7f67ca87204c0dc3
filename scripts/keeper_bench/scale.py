"""How long a keeper takes to form generations: one trainer of many agents, and many trainers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from scripts.benchkit.machine import cpu_s, memory_mb
from scripts.keeper_bench.agents import Agent, all_connect, all_in, by_job
from scripts.labcluster.keeper import Keeper

LIMIT_S = 120.0  # shows a hang, not a speed
OWNER = 1001
_IDLE_S = 3.0


@dataclass(frozen=True, slots=True)
class Step:
    """What was done, how long it took, and the keeper's processor time for it."""

    what: str
    wall_s: float
    keeper_s: float


@dataclass(frozen=True, slots=True)
class Scale:
    """The measurements for a number of trainers and agents; memory is the keeper's."""

    trainers: int
    agents: int
    steps: list[Step]
    idle_share: float  # of a processor, with nothing but pings
    memory_mb: float
    hung_up: int  # on agents that were silent, as happens on a busy machine


async def measure(keeper: Keeper, key: bytes, trainers: int, agents: int) -> Scale:
    """Form all trainers' first generations, let each lose its first rank, and take it back."""
    pid, steps = keeper.pid, list[Step]()
    assert pid is not None

    @contextmanager
    def step(what: str) -> Iterator[None]:
        began_s, used_s = time.monotonic(), cpu_s(pid)
        yield
        steps.append(Step(what, time.monotonic() - began_s, cpu_s(pid) - used_s))

    empty_mb = memory_mb(pid)
    arrays = range(1, trainers + 1)
    for array in arrays:
        keeper.client.own(array, OWNER, agents)
    login = by_job(keeper.address, key, OWNER)
    fleet = [Agent(login, array, task) for task in range(agents) for array in arrays]
    with step("all connect"):
        await all_connect(fleet, LIMIT_S)
    with step("first generation"):
        await _ready(fleet, fleet, 1)
    with step("rank 0 is lost"):
        for agent in [one for one in fleet if one.rank == 0]:
            fleet.remove(agent)
            agent.close()
        await all_in(fleet, 2, LIMIT_S)
    newcomers = [Agent(login, array, agents) for array in arrays]
    await all_connect(newcomers, LIMIT_S)
    fleet += newcomers
    with step("a node joins"):
        await _ready(newcomers, fleet, 3)
    used_s = cpu_s(pid)
    await asyncio.sleep(_IDLE_S)
    idle_share, grown_mb = (cpu_s(pid) - used_s) / _IDLE_S, memory_mb(pid) - empty_mb
    hung_up = sum(agent.hung_up for agent in fleet)
    for agent in fleet:
        agent.close()
    return Scale(trainers, agents, steps, idle_share, grown_mb, hung_up)


async def _ready(new: list[Agent], fleet: list[Agent], generation: int) -> None:
    for agent in new:
        agent.ready("new")
    await all_in(fleet, generation, LIMIT_S)
