"""The training of examples/elastic for ever, with checkpoints, written down step by step.

Usage: inprocess.py FOLDER. FOLDER/steps gets a file for each process; ``training`` reads it.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn import datasets
from torch import nn
from torch.utils.data import TensorDataset

from bftrainer_slurm import elastic

_EPOCHS = 10**6
_PAUSE_S = 0.1  # a step: the processors are for all nodes of the cluster


def main() -> None:
    """Train for ever."""
    folder = Path(sys.argv[1])
    name = f"{os.environ['SLURMD_NODENAME']}.{os.getpid()}"
    log = os.open(folder / "steps" / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    rename = Path.rename
    key = "-"
    began_ns = time.monotonic_ns()

    def write(kind: str, number: int) -> None:
        world = dist.get_world_size()
        os.write(log, f"{time.monotonic():.3f} {kind} {key} {world} {number}\n".encode())

    def noted_rename(path: Path, target: Path) -> Path:
        found = rename(path, target)
        if target.name.startswith("step-"):
            write("saved", int(target.name.removeprefix("step-")))
        return found

    Path.rename = noted_rename  # type: ignore[method-assign, assignment]
    torch.set_num_threads(1)
    images, labels = datasets.load_digits(return_X_y=True)
    dataset = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    trainer = elastic.Trainer(
        model, optimizer, checkpoint=folder / "checkpoints", checkpoint_every_s=2.0
    )
    for x, y in trainer.loader(dataset, batch_size=32, epochs=_EPOCHS):
        with trainer.step() as step:
            optimizer.zero_grad()
            loss = criterion(trainer.ddp(x), y)
            # Numbers begin anew with each run of a trainer: when rank 0 began tells two apart.
            leader = torch.tensor([began_ns])
            if trainer.generation:
                dist.broadcast(leader, src=0)
            loss.backward()
            optimizer.step()
        if step.committed:
            key = f"{trainer.generation}:{int(leader)}"
            write("step", trainer.cursor.step)
            time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main()
