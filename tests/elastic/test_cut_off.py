"""Networks to the keeper are cut, nodes sleep: never do two groups train.

Real torchruns and a real keeper, as a whole; whom it waits for is in ``keeper/test_away.py``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from scripts.labcluster.keeper import Keeper, started_keeper
from scripts.labcluster.waiting import wait_until
from tests.elastic.agents import ARRAY, Agents

pytestmark = pytest.mark.torch
_TO_KEEPER, _TO_NODE = "to the keeper", "to the node"


class Network:
    """What a node connects to in place of the keeper. What is cut is delivered once it is healed.

    As in a real network whose packets are lost: nobody is told that it is cut.
    """

    def __init__(self, keeper: str) -> None:
        self.keeper = keeper.split(":")
        self.cut: tuple[str, ...] = ()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()

    async def _serve(self) -> None:
        await (await asyncio.start_server(self._connect, sock=self._listener)).serve_forever()

    async def _connect(self, node: StreamReader, to_node: StreamWriter) -> None:
        while self.cut:
            await asyncio.sleep(0.02)
        keeper, to_keeper = await asyncio.open_connection(*self.keeper)
        ways = self._carry(node, to_keeper, _TO_KEEPER), self._carry(keeper, to_node, _TO_NODE)
        await asyncio.gather(*ways)

    async def _carry(self, source: StreamReader, sink: StreamWriter, way: str) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                while way in self.cut:
                    await asyncio.sleep(0.02)
                sink.write(data)
        sink.close()


class Cuttable(Agents):
    """A trainer whose nodes reach the keeper by networks of their own."""

    def __init__(self, keeper: Keeper, folder: Path) -> None:
        super().__init__(keeper, folder)
        self.networks: dict[int, Network] = {}

    def start(self, *tasks: int, **environment: str) -> None:
        for task in tasks:
            self.networks[task] = Network(self.keeper.address)
            super().start(task, BFTRAINER_KEEPER=self.networks[task].address, **environment)

    def kill(self, task: int) -> None:
        """Slurm has ended it, and the controller says so."""
        super().kill(task)
        self.keeper.client.lost(ARRAY, task, f"n{task}")


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cuttable]:
    folder = tmp_path_factory.mktemp("cut-off")
    with started_keeper(folder) as keeper:
        trainer = Cuttable(keeper, folder / "trainer")
        yield trainer
        trainer.end()


@pytest.mark.parametrize(
    ("cut", "goes_on"),
    [((_TO_KEEPER, _TO_NODE), True), ((_TO_NODE,), True), ((_TO_KEEPER,), False), ((), False)],
    ids=["is cut off", "hears nothing", "is not heard, but hears of the newcomer", "sleeps"],
)
def test_a_newcomer_waits_for_a_whole_group_that(
    trainer: Cuttable, cut: tuple[str, ...], goes_on: bool
) -> None:
    (first,) = trainer.of(1)
    element = trainer.processes[first].pid
    trainer.networks[first].cut = cut
    if not cut:
        os.killpg(element, signal.SIGSTOP)
    trainer.own(2)
    trainer.start(newcomer := max(trainer.nodes) + 1)
    said = f"waits for element {ARRAY}_{first} on n{first}: it may still train"
    wait_until(lambda: said in trainer.log(newcomer))
    if goes_on:
        trainer.wait_for_steps(first)
    assert trainer.steps(newcomer) == []
    trainer.networks[first].cut = ()
    os.killpg(element, signal.SIGCONT)
    trainer.wait_for_world(2, first, newcomer)
    assert {step.world for step in trainer.steps(newcomer)} == {2}, "never do two groups train"
