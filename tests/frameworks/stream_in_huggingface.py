"""A stream (IterableDataset) with max_steps, which rank 0 reads for all.

What each process trains is in a file of it: a time, the size of the world, a sample's number.
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.utils.data import IterableDataset
from transformers import Trainer, TrainingArguments


class Numbers(IterableDataset[dict[str, torch.Tensor]]):
    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        return ({"x": torch.full((1,), float(row))} for row in range(100_000))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        time.sleep(0.1)
        for row in x.flatten().tolist():
            print(time.monotonic(), torch.distributed.get_world_size(), int(row), file=LOG)
        return {"loss": self.layer(x / 1e5).square().mean()}


def main() -> None:
    arguments = TrainingArguments(
        str(FOLDER / "output"),
        max_steps=100_000,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    Trainer(Model(), arguments, train_dataset=Numbers()).train()


FOLDER = Path(sys.argv[1])
LOG = (FOLDER / f"{os.environ['SLURMD_NODENAME']}.{os.getpid()}").open("w", 1)
main()
