"""What every program trains, and how it writes down which samples; used in training processes.

A line a step and rank, in a file a process: step, rank, world, the learning rate of the step, and
the samples. ``done`` says that a step that was written down has been committed.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

SLOW, SLOW_S = "slow", 3.0  # the file that says so, and a step's seconds then
RATE = 0.05  # the highest learning rate; it falls in a straight line to 0


class Samples(Dataset[dict[str, Tensor]]):
    """Points on a line with noise; each knows its number."""

    def __init__(self, size: int) -> None:
        given = torch.Generator().manual_seed(0)
        self._x = torch.rand(size, 4, generator=given)
        noise = torch.rand(size, generator=given) * 0.1
        self._y = self._x @ torch.tensor([1.0, -2.0, 3.0, 0.5]) + noise

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        found = {"x": self._x[number], "labels": self._y[number]}
        return found | {"numbers": torch.tensor(number)}

    def loss(self, model: nn.Module) -> float:
        """Return a model's loss over all samples."""
        with torch.no_grad():
            return float(nn.functional.mse_loss(model(self._x).squeeze(-1), self._y))


class Recording:
    """Writes down what one process trains."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        node = os.environ.get("SLURM_JOB_ID", "0")
        self._file = (folder / f"{node}.{os.getpid()}.jsonl").open("a", 1)

    def step(
        self, step: int, rank: int, world: int, rate: float, numbers: Iterable[int], *life: object
    ) -> None:
        """Write down a step, from 1 on; ``life`` tells one start of all processes from others."""
        if life == (0,):
            return  # in process, a newcomer's steps before it is in the group
        own = life or os.environ.get("MASTER_PORT")  # each start has a store of its own
        line = {"step": step, "rank": rank, "world": world, "rate": rate, "life": str(own)}
        self._write(line | {"numbers": list(map(int, numbers))})

    def done(self, step: int) -> None:
        """Say that a step is committed, where a step may be given up."""
        self._write({"done": step})

    def end(self, loss: float) -> None:
        """Say that the training has ended, and with what loss."""
        self._write({"loss": loss})

    def _write(self, line: dict[str, object]) -> None:
        print(json.dumps({"time_s": time.monotonic(), **line}), file=self._file)


def made_model() -> nn.Module:
    """Return the same small model on all ranks."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return nn.Linear(4, 1)


def compute(given: argparse.Namespace) -> None:
    """Take the time of a step; much more while a change is under way, which takes its seconds."""
    time.sleep(SLOW_S if (given.record / SLOW).exists() else given.compute)


def options(*more: str) -> argparse.Namespace:
    """Read a program's command line; ``more`` are its own options, which are texts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True, help="for checkpoints")
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--save-every", type=int, required=True, help="steps")
    parser.add_argument("--compute", type=float, required=True, help="seconds of a step")
    for name in more:
        parser.add_argument(f"--{name}", default="")
    return parser.parse_args()
