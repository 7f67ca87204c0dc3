"""A plain DDP script, as small as can be, that knows nothing of elements.

Writes a line for each step (time, world, step) into FOLDER/NODE.PID, and ends when FOLDER/stop is
there; rank 0 ends only when FOLDER/saving is not. On a node with FOLDER/fail.NODE it raises, and
on as many ranks as FAILS_ON says.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    folder, node = Path(sys.argv[1]), os.environ["SLURMD_NODENAME"]
    dist.init_process_group("gloo")
    if str(dist.get_world_size()) == os.environ.get("FAILS_ON"):
        raise ValueError(f"a batch of 64 does not divide by {dist.get_world_size()}")
    parallel = DistributedDataParallel(nn.Linear(64, 64))
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    checkpoint = folder / "checkpoint"
    step = torch.tensor([int(checkpoint.read_text()) if checkpoint.exists() else 0])
    dist.broadcast(step, src=0)
    stop = torch.zeros(1)
    with (folder / f"{node}.{os.getpid()}").open("w", 1) as log:
        while not stop.item():
            if (folder / f"fail.{node}").exists():
                raise ValueError("no such data")
            parallel(torch.randn(8, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            print(time.monotonic(), dist.get_world_size(), step.item(), file=log)
            if dist.get_rank() == 0:
                beside = folder / "checkpoint.new"
                beside.write_text(str(step.item()))
                beside.replace(checkpoint)
            stop[0] = (folder / "stop").exists()
            dist.all_reduce(stop, dist.ReduceOp.MAX)
            time.sleep(0.2)  # the processors are for all nodes
    rank = dist.get_rank()
    dist.destroy_process_group()
    while rank == 0 and (folder / "saving").exists():
        time.sleep(0.02)


if __name__ == "__main__":
    main()
