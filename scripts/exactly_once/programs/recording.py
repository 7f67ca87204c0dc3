"""What every program trains, and how it writes down which samples; used in training processes.

Each step in the log (``benchkit.steps``) has its learning rate, its samples, and its start's name.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

STEP_S = 0.05  # at least
SLOW, SLOW_S = "slow", 3.0  # while this file exists, a step takes so many seconds
LOSS = "loss"  # a file, at the end
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


class Place:
    """Where a training is, as a part of its checkpoint; ``trained``: batches or samples so far."""

    def __init__(self) -> None:
        self.step = self.epoch = self.trained = 0

    def state_dict(self) -> dict[str, Any]:
        """Return all of it."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take another one."""
        vars(self).update(state)


class Work:
    """What a program is given: its options, samples, the same small model on all ranks, a log.

    ``own`` are the program's own options, which are texts.
    """

    def __init__(self, *own: str) -> None:
        self.given = _options(own)
        self.folder = self.given.folder / "output"  # for checkpoints
        self.folder.mkdir(exist_ok=True)
        name = f"{os.environ['SLURM_JOB_ID']}.{os.getpid()}"
        self._log = (self.given.folder / "steps" / name).open("a", 1)
        self.data = Samples(self.given.samples)
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.model: nn.Module = nn.Linear(4, 1)

    def compute(self) -> None:
        """Take a step's time; much more while a change is under way, which takes its seconds."""
        time.sleep(SLOW_S if (self.given.folder / SLOW).exists() else STEP_S)

    def step(self, number: int, optimizer: torch.optim.Optimizer, samples: Iterable[int]) -> None:
        """Write down a step, from 1 on, before its backward pass.

        Then a step that others have completed and kept is whole here, whenever this process ends.
        """
        said = {
            "rate": float(optimizer.param_groups[0]["lr"]),
            "group": os.environ["MASTER_PORT"],  # each start has a store of its own
            "numbers": list(map(int, samples)),
        }
        print(time.monotonic(), os.environ["WORLD_SIZE"], number, json.dumps(said), file=self._log)

    def end(self, model: nn.Module) -> None:
        """Say on rank 0 that the training has ended, and with what loss."""
        if os.environ["RANK"] == "0":
            (self.given.folder / LOSS).write_text(str(self.data.loss(model)))

    def newest(self) -> Path | None:
        """Return the last checkpoint, a folder, that all ranks have written to its end."""
        saved = [path for path in self.folder.glob("step-*") if path.name[5:].isdecimal()]
        return max(saved, key=lambda path: int(path.name[5:]), default=None)


def loss_of(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Return the loss of a batch."""
    return nn.functional.mse_loss(model(batch["x"]).squeeze(-1), batch["labels"])


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint whole, or not at all."""
    beside = path.with_name(f"{path.stem}.{os.getpid()}")
    torch.save(state, beside)
    beside.replace(path)


def _options(own: Iterable[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--save-every", type=int, default=10, help="steps")
    for name in own:
        parser.add_argument(f"--{name}", default="")
    return parser.parse_args()
