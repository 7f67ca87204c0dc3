"""What the in-process tests train with each framework, and what they write down of it.

The files are those of ``tests.elastic.inprocess``.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import Dataset

from bftrainer_slurm import elastic
from bftrainer_slurm.elastic.inprocess.collective import Communicator
from bftrainer_slurm.elastic.inprocess.phases import PeerLostError
from tests.elastic.inprocess import Numbers, digest


class Rows(Dataset[dict[str, Tensor]]):
    """Samples that know their number, with more or fewer labels that count."""

    def __init__(self, size: int) -> None:
        self._numbers = Numbers(size)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        labels = torch.tensor([1, 0, 1, 1])
        labels[number % 4 + 1 :] = -100
        return {"x": self._numbers[number][0], "numbers": torch.tensor(number), "labels": labels}


class Model(nn.Module):
    """Some layers, and the loss of a mean over labels, as language models have it."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 8))

    def forward(
        self, x: Tensor, numbers: Tensor, labels: Tensor, **others: Tensor
    ) -> dict[str, Tensor]:
        given = self.layers(x).reshape(-1, 2)
        total = nn.functional.cross_entropy(given, labels.reshape(-1), reduction="sum")
        return {"loss": total / others.get("num_items_in_batch", (labels >= 0).sum())}


class Log:
    """What one process tries and has done."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.where = (
            f"{os.environ.get('SLURMD_NODENAME', 'here')}.{os.environ.get('LOCAL_RANK', '0')}"
        )
        self._file = (folder / f"{self.where}.{os.getpid()}").open("w", 1)

    def tried(self, trainer: elastic.Trainer, weight: float, numbers: Tensor, epoch: int) -> None:
        samples = json.dumps(numbers.tolist() if weight else [])
        self._write(trainer, "tried", trainer.cursor.step + 1, epoch, samples)

    def done(self, trainer: elastic.Trainer, step: int) -> None:
        self._write(trainer, "done", step)

    def end(self, trainer: elastic.Trainer, model: nn.Module, *others: Any) -> None:
        torch.save(model.state_dict(), self._folder / f"weights.{self.where}")
        states = digest(model, *others)
        (self._folder / f"end.{self.where}").write_text(f"{states} {trainer.cursor.samples}")

    def _write(self, trainer: elastic.Trainer, *words: object) -> None:
        place = trainer.generation, dist.get_world_size(), dist.get_rank()
        print(time.monotonic(), *place, *words, file=self._file)


def lose_at(trainer: Callable[[], elastic.Trainer], step: int) -> None:
    """Let rank 1 lose the others after they have committed this step, before it does."""
    commit = Communicator.commit

    def commit_or_lose(group: Communicator) -> None:
        commit(group)
        if group.rank == 1 and trainer().cursor.step == step - 1 and trainer()._step is not None:
            time.sleep(0.5)
            group.fail(PeerLostError("as if"))
            group.check()

    Communicator.commit = commit_or_lose  # type: ignore[method-assign]
