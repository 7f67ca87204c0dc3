"""What the suite's trainers run inside elements; each step and checkpoint is written down.

Usage: job.py digits|inprocess FOLDER TRAIN_PY. FOLDER/steps gets a file for each process;
``training`` reads it.
"""

import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

_BATCH = 32.0  # the example's: a number is one batch of one rank
_PAUSE_S = 0.25  # a step: the processors are for all nodes of the cluster


class Log:
    """This process's file; ``key`` names the generation of processes that step together."""

    def __init__(self, folder: Path) -> None:
        name = f"{os.environ['SLURMD_NODENAME']}.{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(folder / "steps" / name, flags, 0o644)
        self.key = "-"

    def write(self, kind: str, number: float) -> None:
        """Say that a step, or a checkpoint (``saved``), is complete now."""
        world = dist.get_world_size()
        line = f"{time.monotonic():.3f} {kind} {self.key} {world} {number:g}\n"
        os.write(self._file, line.encode())


def digits(folder: Path, log: Log, train: str) -> None:
    """Run examples/digits/train.py as it is, for ever."""
    from bftrainer_slurm.elastic import steps

    log.key = os.environ["MASTER_PORT"]  # a generation has a store of its own, and so a port
    step, save, replace = steps.step, torch.save, Path.replace
    saved = 0.0

    def counted_step(samples: float | None = None) -> None:
        step(samples)
        log.write("step", sys._getframe(1).f_locals["seen"] / _BATCH)
        time.sleep(_PAUSE_S)

    def noted_save(value: Any, path: Any) -> None:
        nonlocal saved
        if isinstance(value, dict):
            saved = value["seen"] / _BATCH
        save(value, path)

    def noted_replace(path: Path, target: Path) -> Path:
        found = replace(path, target)
        if target.name == "checkpoint.pt":
            log.write("saved", saved)
        return found

    steps.step, torch.save, Path.replace = counted_step, noted_save, noted_replace  # type: ignore[method-assign, assignment]
    sys.argv = [train, "--folder", str(folder), "--samples", str(10**12)]
    runpy.run_path(train, run_name="__main__")


def inprocess(folder: Path, log: Log) -> None:
    """Train as examples/elastic does, for ever, with checkpoints."""
    from torch import nn
    from torch.utils.data import TensorDataset

    from bftrainer_slurm import elastic

    rename, began_ns = Path.rename, time.monotonic_ns()

    def noted_rename(path: Path, target: Path) -> Path:
        found = rename(path, target)
        if target.name.startswith("step-"):
            log.write("saved", int(target.name.split("-")[1]))
        return found

    Path.rename = noted_rename  # type: ignore[method-assign, assignment]
    # Not the example's digits: to import scikit-learn, each process would need 1.5 s of a core.
    alike = torch.Generator().manual_seed(0)
    images = torch.rand(1797, 64, generator=alike)
    dataset = TensorDataset(images, torch.randint(10, (1797,), generator=alike))
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    checkpoints = folder / "checkpoints"
    trainer = elastic.Trainer(model, optimizer, checkpoint=checkpoints, checkpoint_every_s=2.0)
    for x, y in trainer.loader(dataset, batch_size=32, epochs=10**6):
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
            log.key = f"{trainer.generation}:{int(leader)}"
            log.write("step", trainer.cursor.step)
            time.sleep(_PAUSE_S)


if __name__ == "__main__":
    torch.set_num_threads(1)
    kind, where, train = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    if kind == "digits":
        digits(where, Log(where), train)
    else:
        inprocess(where, Log(where))
