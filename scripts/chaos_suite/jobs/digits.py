"""Runs examples/digits/train.py as it is, and writes down its steps and its checkpoints.

Usage: digits.py TRAIN_PY FOLDER. FOLDER/steps gets a file for each process; ``training`` reads it.
"""

import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from bftrainer_slurm.elastic import steps

_BATCH = 32.0  # the example's: a number is one batch of one rank
_PAUSE_S = 0.1  # a step: the processors are for all nodes of the cluster


def main() -> None:
    """Train for ever."""
    train, folder = sys.argv[1], Path(sys.argv[2])
    # A generation has a store of its own, and so a port.
    key = os.environ["MASTER_PORT"]
    name = f"{os.environ['SLURMD_NODENAME']}.{os.getpid()}"
    log = os.open(folder / "steps" / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    step, save, replace = steps.step, torch.save, Path.replace
    saved = 0.0

    def write(kind: str, number: float) -> None:
        world = dist.get_world_size()
        os.write(log, f"{time.monotonic():.3f} {kind} {key} {world} {number:g}\n".encode())

    def counted_step(samples: float | None = None) -> None:
        step(samples)
        write("step", sys._getframe(1).f_locals["seen"] / _BATCH)
        time.sleep(_PAUSE_S)

    def noted_save(value: Any, path: Any) -> None:
        nonlocal saved
        if isinstance(value, dict):
            saved = value["seen"] / _BATCH
        save(value, path)

    def noted_replace(path: Path, target: Path) -> Path:
        found = replace(path, target)
        if target.name == "checkpoint.pt":
            write("saved", saved)
        return found

    steps.step, torch.save, Path.replace = counted_step, noted_save, noted_replace  # type: ignore[method-assign, assignment]
    torch.set_num_threads(1)
    sys.argv = [train, "--folder", str(folder), "--samples", str(10**12)]
    runpy.run_path(train, run_name="__main__")


if __name__ == "__main__":
    main()
