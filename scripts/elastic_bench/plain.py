"""A plain DDP script for c10d and for our handler; it survives restarts by its checkpoint.

It writes one line for each completed step, in one file per process; ``figures`` reads it.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

_COMPUTE_S = 0.02  # in each step the processor is idle for so long, as beside an accelerator
_SAMPLES, _BATCH = 1024, 32


def main(folder: Path) -> None:
    """Train until somebody ends it."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    images, labels = torch.randn(_SAMPLES, 64), torch.randint(10, (_SAMPLES,))
    checkpoint, step = folder / "checkpoint.pt", 0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    agreed = torch.tensor([step])
    dist.broadcast(agreed, src=0)  # ranks may have read two different checkpoints
    if step != int(agreed):
        raise RuntimeError("read another checkpoint than rank 0; the agents start all again")
    parallel = DistributedDataParallel(model)
    name = f"{os.environ['BENCH_NODE']}.{os.getpid()}.log"
    log = os.open(folder / "logs" / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        first = (step * world + rank) * _BATCH
        some = torch.arange(first, first + _BATCH) % _SAMPLES
        time.sleep(_COMPUTE_S)
        optimizer.zero_grad()
        nn.functional.cross_entropy(parallel(images[some]), labels[some]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        step += 1
        if rank == 0:
            beside = checkpoint.with_name(f"checkpoint.{os.getpid()}")
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state | {"step": step}, beside)
            beside.replace(checkpoint)
        os.write(log, f"{time.monotonic():.6f} {world}\n".encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
