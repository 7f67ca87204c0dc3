"""A plain DDP script for c10d and for our handler; it survives restarts by its checkpoint.

It logs its steps as ``benchkit.steps`` reads them. It saves after each step (``--keep=step``), or
when it is told to and every five seconds: on a disk (``told``), which may be slow
(``--mb-per-s``), or in memory (``memory``).
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bftrainer_slurm import elastic

_COMPUTE_S = 0.02  # in each step the processor is idle for so long, as beside an accelerator
_SAMPLES, _BATCH = 1024, 32
_EVERY_S = 5.0


def main() -> None:
    """Train until somebody ends it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--keep", default="step")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--mb-per-s", type=float, default=1e9)
    given = parser.parse_args()
    folder = given.folder
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, given.width), nn.ReLU(), nn.Linear(given.width, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    images, labels = torch.randn(_SAMPLES, 64), torch.randint(10, (_SAMPLES,))
    checkpoint, step, saved_s = folder / "checkpoint.pt", 0, time.monotonic()
    memory = given.keep == "memory"
    if memory:
        snapshot = elastic.Snapshot(checkpoint, model=model, optimizer=optimizer)
        step = snapshot.load() or 0
    elif checkpoint.exists():
        time.sleep(checkpoint.stat().st_size / 1e6 / given.mb_per_s)
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    agreed = torch.tensor([step])
    dist.broadcast(agreed, src=0)  # ranks may have read two different checkpoints
    if step != int(agreed):
        raise RuntimeError("read another checkpoint than rank 0; the agents start all again")
    parallel = DistributedDataParallel(model)
    log = (folder / "steps" / f"{os.environ['SLURM_JOB_ID']}.{os.getpid()}").open("w", 1)
    while True:
        first = (step * world + rank) * _BATCH
        some = torch.arange(first, first + _BATCH) % _SAMPLES
        time.sleep(_COMPUTE_S)
        optimizer.zero_grad()
        nn.functional.cross_entropy(parallel(images[some]), labels[some]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        step += 1
        told = given.keep != "step" and elastic.must_save()
        if memory:
            snapshot.save(step)
        late = time.monotonic() - saved_s > _EVERY_S
        if rank == 0 and not memory and (given.keep == "step" or told or late):
            beside = checkpoint.with_name(f"checkpoint.{os.getpid()}")
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state | {"step": step}, beside)
            time.sleep(beside.stat().st_size / 1e6 / given.mb_per_s)
            beside.replace(checkpoint)
            saved_s = time.monotonic()
        print(f"{time.monotonic():.6f}", world, step, file=log)
        if told:
            elastic.saved()


if __name__ == "__main__":
    main()
