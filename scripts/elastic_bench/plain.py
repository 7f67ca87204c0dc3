"""A plain DDP script for c10d and for our handler; it survives restarts by its checkpoint."""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from scripts.elastic_bench.workload import StepLog, Workload, arguments


def main() -> None:
    """Train until somebody ends it."""
    options = arguments()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    work = Workload(options.model, options.compute)
    checkpoint = options.folder / "checkpoint.pt"
    step = 0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        work.model.load_state_dict(state["model"])
        work.optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    agreed = torch.tensor([step])
    dist.broadcast(agreed, src=0)  # ranks may have read two different checkpoints
    if step != int(agreed):
        raise RuntimeError("read another checkpoint than rank 0; the agents start all again")
    parallel = DistributedDataParallel(work.model)
    log = StepLog(options.folder, work.model)
    saved_s = time.monotonic()
    while True:
        work.optimizer.zero_grad()
        work.train(parallel, *work.samples(step, rank, world))
        work.optimizer.step()
        step += 1
        if rank == 0 and time.monotonic() - saved_s >= options.save_every:
            saved_s = time.monotonic()
            beside = checkpoint.with_name(f"checkpoint.{os.getpid()}")
            state = {"model": work.model.state_dict(), "optimizer": work.optimizer.state_dict()}
            torch.save(state | {"step": step}, beside)
            beside.replace(checkpoint)
        log.write(step, world)


if __name__ == "__main__":
    main()
