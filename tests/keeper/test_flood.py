"""One user floods the keeper while another's trainer rescales: the other is not starved."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bftrainer_slurm.keeper.credentials import JOB_SECRET, Means, secret_of_job
from scripts.labcluster.keeper import Keeper, started_keeper
from scripts.labcluster.stage import REPO
from tests.keeper import flood
from tests.keeper.agents import Agent, all_connect, all_in, many_files

VICTIM, FLOODER = 1001, 1002  # users
ARRAY, NODES = 12, 4  # the victim's trainer
STARVED_S = 30.0


def test_a_flood_of_all_kinds_starves_nobody_else(tmp_path: Path) -> None:
    key = tmp_path / "site.key"
    key.touch(mode=0o600)
    key.write_text(os.urandom(32).hex())
    secrets = {
        array: secret_of_job(key.read_bytes(), array, user)
        for array, user in ((ARRAY, VICTIM), (flood.ARRAY, FLOODER))
    }
    with many_files(), started_keeper(tmp_path, Means(key)) as keeper:
        keeper.client.own(ARRAY, VICTIM, NODES)
        keeper.client.own(flood.ARRAY, FLOODER, 256)
        keeper.client.publish({})
        with flooded(keeper, secrets[flood.ARRAY]):
            took_s = asyncio.run(rescales(keeper, secrets[ARRAY], 10))
            refused = keeper.status()["keeper"]["refused"]
    print(f"rescales took {', '.join(f'{1e3 * one:.0f}' for one in took_s)} ms; {refused}")
    assert max(took_s) < STARVED_S
    assert refused["flood"] > 0


async def rescales(keeper: Keeper, secret: bytes, repeat: int) -> list[float]:
    """Let a trainer lose a node and get a new one; return how long (s) each took for all of it."""
    loop = asyncio.get_running_loop()
    agents = [Agent(keeper.address, secret, ARRAY, task) for task in range(NODES)]
    await all_connect(agents, 2 * STARVED_S)
    for agent in agents:
        agent.ready("new")
    await all_in(agents, 1, 2 * STARVED_S)
    took_s = list[float]()
    for task in range(NODES, NODES + repeat):
        lost = next(agent for agent in agents if agent.rank == NODES - 1)
        agents.remove(lost)
        before, began_s = agents[0].generation, loop.time()
        lost.close()
        await all_in(agents, before + 1, 2 * STARVED_S)
        took_s.append(max(agent.at_s for agent in agents) - began_s)
        newcomer = Agent(keeper.address, secret, ARRAY, task)
        began_s = loop.time()
        await all_connect([newcomer], 2 * STARVED_S)
        agents.append(newcomer)
        newcomer.ready("new")
        await all_in(agents, before + 2, 2 * STARVED_S)
        took_s.append(max(agent.at_s for agent in agents) - began_s)
    for agent in agents:
        agent.close()
    return took_s


@contextmanager
def flooded(keeper: Keeper, secret: bytes) -> Iterator[None]:
    """Flood the keeper in this context, from another process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.keeper.flood", keeper.address],
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
