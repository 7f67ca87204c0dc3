"""The gradient noise scale: what DDP's own reductions tell of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bftrainer_slurm.elastic.memory import VARIABLE, Memory, StepCounts
from bftrainer_slurm.elastic.noise import noise_scale
from bftrainer_slurm.elastic.progress import Era, measures

pytestmark = pytest.mark.torch

# The gradient of a mean of samples is known: 3 in each of 100 directions, with a deviation of 30 a
# sample. So the noise scale is 100 * 30**2 / (100 * 3**2) = 100 samples.
BATCH = 32
SCRIPT = """
import os, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from bftrainer_slurm import elastic

ranks = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", **ranks)
torch.manual_seed(dist.get_rank())
model, plain = (DDP(torch.nn.Linear(100, 1, bias=False)) for _ in range(2))
elastic.measure_noise(model)
for step in range(400):
    samples = 3 + 30 * torch.randn(int(sys.argv[2]), 100)
    for one in (model, plain):
        one.zero_grad()
        one(samples).mean().backward()
    for mine, other in zip(model.parameters(), plain.parameters()):
        assert torch.equal(mine.grad, other.grad)
dist.destroy_process_group()
"""


def run(ranks: int, file: Path) -> float:
    """Return what so many processes have measured, in batches of a step."""
    memory = Memory.made()
    environment = {**os.environ, "WORLD_SIZE": str(ranks), VARIABLE: memory.path}
    environment["BFTRAINER_ELEMENT"] = "7_0"
    processes = [
        subprocess.Popen(
            (sys.executable, "-c", SCRIPT, str(file), str(BATCH)),
            env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(ranks)
    ]
    assert [process.wait(120) for process in processes] == [0] * ranks
    return memory.read().noise


def test_the_noise_scale_is_found_and_gradients_are_those_of_ddp(tmp_path: Path) -> None:
    assert run(2, tmp_path / "two") * 2 * BATCH == pytest.approx(100, rel=0.25)
    assert run(1, tmp_path / "one") == 0, "a single rank measures nothing"


def test_gradients_without_a_common_part_tell_nothing() -> None:
    assert noise_scale(4.0, 1.0, 4) == 0
    assert noise_scale(1.0, 1.0, 4) == 0


def test_it_is_reported_in_samples() -> None:
    era = Era(1, frozenset(), StepCounts(10, 640.0, 1.0, 2.0))
    now = StepCounts(30, 1920.0, 3.0, 9.0, noise=2.5)
    assert measures(era, now)["noise"] == 160
    assert "noise" not in measures(era, StepCounts(30, None, 3.0, 9.0, noise=2.5))
