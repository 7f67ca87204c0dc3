"""Processes that hang at a change of the nodes are started again, also where all of them do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bftrainer_slurm.keeper import ending
from bftrainer_slurm.keeper.gate import Gate, OneUser
from scripts.labcluster.keeper import Keeper
from scripts.labcluster.waiting import wait_until
from tests.elastic.agents import Agents, started_agents
from tests.keeper.inside import SECRET_TEXT, keeper_inside

pytestmark = pytest.mark.torch

# Trains in process. FOLDER/hang names a step, and the nodes that hang once after it.
SCRIPT = """
import os, sys, time
from pathlib import Path
import torch
import torch.distributed as dist
from torch.utils.data import TensorDataset
from bftrainer_slurm import elastic

folder, node = Path(sys.argv[1]), os.environ["SLURMD_NODENAME"]
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
trainer = elastic.Trainer(model, optimizer)
with (folder / f"{node}.{os.getpid()}").open("w", 1) as log:
    for (x,) in trainer.loader(TensorDataset(torch.randn(1000, 4)), 4, epochs=100_000):
        with trainer.step():
            optimizer.zero_grad()
            trainer.ddp(x).sum().backward()
            optimizer.step()
        print(time.monotonic(), dist.get_world_size(), trainer.cursor.step, file=log)
        hang, hung = folder / "hang", folder / f"hung.{node}"
        step, *nodes = hang.read_text().split() if hang.exists() else ["0"]
        if node in nodes and trainer.cursor.step >= int(step) and not hung.exists():
            hung.touch()
            time.sleep(600)
        time.sleep(0.1)  # the processors are for all nodes
"""


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agents]:
    monkeypatch.setattr(ending, "READY_S", 20.0)
    secret, script = tmp_path / "member.secret", tmp_path / "train.py"
    secret.write_bytes(SECRET_TEXT)
    secret.chmod(0o600)
    script.write_text(SCRIPT)
    with keeper_inside(Gate(OneUser(SECRET_TEXT))) as keeper:
        known: Any = SimpleNamespace(client=keeper.client, state=tmp_path)
        with started_agents(cast(Keeper, known), tmp_path / "run", script) as running:
            yield running


def test_survivors_that_all_hang_are_started_again(agents: Agents) -> None:
    agents.own(3)
    agents.start(1, 2, 3)
    agents.wait_for_world(3, 1, 2, 3)
    # Both after the same step, which is still to come: who hangs holds up the next one of all.
    beside = agents.folder / "hang.new"
    beside.write_text(f"{agents.steps(1)[-1].number + 40} n1 n2")
    beside.replace(agents.folder / "hang")
    hang = [agents.steps(task)[-1].process for task in (1, 2)]
    wait_until(lambda: len(list(agents.folder.glob("hung.*"))) == 2)
    agents.kill(3)
    agents.wait_for_world(2, 1, 2)
    assert not any(Path(f"/proc/{process}").exists() for process in hang)
    assert "bftrainer: n1 is out of its group: not ready in time" in agents.log(1)
