"""A thousand agents at one keeper: what they cost it idle, and what a change of a hundred does."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from scripts.labcluster.keeper import Keeper
from tests.keeper.agents import Agent, all_connect, all_in, many_files

pytestmark = [pytest.mark.torch, pytest.mark.load]

TRAINERS = 10
AGENTS = 100  # of each trainer
BOUND_S = 120.0  # shows a hang, not a speed


def test_a_change_of_a_hundred_among_a_thousand(keeper: Keeper) -> None:
    with many_files():
        asyncio.run(_change(keeper))


async def _change(keeper: Keeper) -> None:
    assert keeper.pid is not None
    arrays = range(1, TRAINERS + 1)
    agents = [
        Agent(keeper.address, keeper.secret(array), array, task)
        for array in arrays
        for task in range(AGENTS)
    ]
    for array in arrays:
        keeper.client.own(array, os.getuid(), AGENTS)
    began = time.monotonic(), cpu_s(keeper.pid)
    await all_connect(agents, BOUND_S)
    for agent in agents:
        agent.ready("new")
    await all_in(agents, 1, BOUND_S)
    _report("1,000 join ten groups", keeper, began)

    began = time.monotonic(), cpu_s(keeper.pid)
    await asyncio.sleep(5.0)
    _report("1,000 idle for 5 s", keeper, began)

    group = [agent for agent in agents if agent.identity.array == 1]
    lost = next(agent for agent in group if agent.rank == 0)
    survivors = [agent for agent in group if agent is not lost]
    began = time.monotonic(), cpu_s(keeper.pid)
    lost.close()
    await all_in(survivors, 2, BOUND_S)
    _report("a change of 100", keeper, began)

    assert {agent.generation for agent in survivors} == {2}
    assert sorted(agent.rank for agent in survivors) == list(range(AGENTS - 1))
    others = [agent for agent in agents if agent.identity.array != 1]
    assert not any(agent.heard["change"] for agent in others)
    for agent in (*survivors, *others):
        agent.close()


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _report(what: str, keeper: Keeper, began: tuple[float, float]) -> None:
    assert keeper.pid is not None
    wall_s, used_s = time.monotonic() - began[0], cpu_s(keeper.pid) - began[1]
    print(f"{what}: {wall_s:.3f} s, of it keeper CPU {used_s:.3f} s")
    assert used_s < BOUND_S
