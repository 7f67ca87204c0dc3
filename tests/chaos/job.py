"""What the suite's trainers run inside elements; each step and checkpoint is written down.

Usage: job.py digits|saves FOLDER TRAIN_PY. FOLDER/steps gets a file for each process;
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


def note(kind: str, number: float) -> None:
    """Write that a step, or a checkpoint (``saved``), is complete now.

    A generation of processes that step together has a store of its own, and so a port.
    """
    words = f"{time.monotonic():.3f}", kind, os.environ["MASTER_PORT"], dist.get_world_size()
    with (where / "steps" / f"{os.environ['SLURMD_NODENAME']}.{os.getpid()}").open("a") as log:
        print(*words, f"{number:g}", file=log)


def digits(folder: Path, train: str) -> None:
    """Run examples/digits/train.py as it is, for ever."""
    from bftrainer_slurm.elastic import steps

    step, save, replace = steps.step, torch.save, Path.replace
    saved = 0.0

    def counted_step(samples: float | None = None) -> None:
        step(samples)
        note("step", sys._getframe(1).f_locals["seen"] / _BATCH)
        time.sleep(_PAUSE_S)

    def noted_save(value: Any, path: Any) -> None:
        nonlocal saved
        if isinstance(value, dict) and hasattr(path, "name"):  # else it is for the memory
            saved = value["place"] / _BATCH
        save(value, path)

    def noted_replace(path: Path, target: str | Path) -> Path:
        found = replace(path, target)
        if Path(target).name == "checkpoint.pt":
            note("saved", saved)
        return found

    steps.step, torch.save, Path.replace = counted_step, noted_save, noted_replace  # type: ignore[method-assign, assignment]
    sys.argv = [train, "--folder", str(folder), "--samples", str(10**12)]
    runpy.run_path(train, run_name="__main__")


def saves(folder: Path) -> None:
    """Train plain DDP for ever; save each two seconds, and when told to."""
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from bftrainer_slurm import elastic

    dist.init_process_group("gloo")
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    checkpoint = folder / "checkpoint.pt"
    step = torch.zeros(1)
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        step += state["step"]
    dist.broadcast(step, src=0)  # ranks may have read two different checkpoints
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=1e-3)
    saved_s = time.monotonic()
    while True:
        # Not the example's digits: to import scikit-learn, each process would need 1.5 s of a core.
        images, labels = torch.rand(32, 64), torch.randint(10, (32,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(parallel(images), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        step += 1
        elastic.step(samples=32 * dist.get_world_size(), number=int(step))
        note("step", float(step))
        told = elastic.must_save()
        if dist.get_rank() == 0 and (told or time.monotonic() - saved_s > 2):
            saved_s = time.monotonic()
            # A node that hung and comes back may write what the others have long passed.
            if not checkpoint.exists() or torch.load(checkpoint)["step"] < step:
                beside = folder / f"checkpoint.{os.getpid()}"
                torch.save({"model": model.state_dict(), "step": step}, beside)
                beside.replace(checkpoint)
                note("saved", float(step))
        if told:
            elastic.saved()
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    torch.set_num_threads(1)
    kind, where, train = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    if kind == "digits":
        digits(where, train)
    else:
        saves(where)
