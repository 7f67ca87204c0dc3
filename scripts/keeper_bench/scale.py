"""How long a keeper takes to form generations: one trainer of many agents, and many trainers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from scripts.benchkit.machine import cpu_s, memory_mb
from scripts.keeper_bench.agents import Agent, all_connect, all_in, by_job
from scripts.labcluster.keeper import Keeper

LIMIT_S = 120.0  # shows a hang, not a speed
OWNER = 1001
_IDLE_S = 3.0


@dataclass(frozen=True, slots=True)
class Step:
    """What was done, how long it took, and what of that was the keeper's processor time."""

    what: str
    wall_s: float
    keeper_s: float


@dataclass(slots=True)
class Scale:
    """What was measured with so many trainers of so many agents; memory is the keeper's."""

    trainers: int
    agents: int
    steps: list[Step] = field(default_factory=list)
    idle_share: float = 0.0  # of a processor, with nothing but pings
    memory_mb: float = 0.0
    hung_up: int = 0  # on agents that fell silent, as a busy machine makes them

    @contextmanager
    def step(self, what: str, pid: int) -> Iterator[None]:
        """Measure what is done meanwhile."""
        began_s, used_s = time.monotonic(), cpu_s(pid)
        yield
        self.steps.append(Step(what, time.monotonic() - began_s, cpu_s(pid) - used_s))


async def measure(keeper: Keeper, key: bytes, trainers: int, agents: int) -> Scale:
    """Form all trainers' first generations, let each lose its first rank, and take it back."""
    pid = keeper.pid
    assert pid is not None
    found, empty_mb = Scale(trainers, agents), memory_mb(pid)
    arrays = range(1, trainers + 1)
    for array in arrays:
        keeper.client.own(array, OWNER, agents)
    entrance = by_job(keeper.address, key, OWNER)
    fleet = [Agent(entrance, array, task) for task in range(agents) for array in arrays]
    with found.step("all connect", pid):
        await all_connect(fleet, LIMIT_S)
    with found.step("first generation", pid):
        await _ready(fleet, fleet, 1)
    with found.step("rank 0 is lost", pid):
        for agent in [one for one in fleet if one.rank == 0]:
            fleet.remove(agent)
            agent.close()
        await all_in(fleet, 2, LIMIT_S)
    newcomers = [Agent(entrance, array, agents) for array in arrays]
    await all_connect(newcomers, LIMIT_S)
    fleet += newcomers
    with found.step("a node joins", pid):
        await _ready(newcomers, fleet, 3)
    used_s = cpu_s(pid)
    await asyncio.sleep(_IDLE_S)
    found.idle_share = (cpu_s(pid) - used_s) / _IDLE_S
    found.memory_mb = memory_mb(pid) - empty_mb
    found.hung_up = sum(agent.hung_up for agent in fleet)
    for agent in fleet:
        agent.close()
    return found


async def _ready(new: list[Agent], fleet: list[Agent], generation: int) -> None:
    for agent in new:
        agent.ready("new")
    await all_in(fleet, generation, LIMIT_S)
