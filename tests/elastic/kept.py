"""A plain script that keeps its state in memory, and on no disk; else as ddp.py."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bftrainer_slurm import elastic


def main() -> None:
    folder, node = Path(sys.argv[1]), os.environ["SLURMD_NODENAME"]
    dist.init_process_group("gloo")
    model = nn.Linear(64, 64)
    optimizer = torch.optim.Adam(model.parameters())
    snapshot = elastic.Snapshot(model=model, optimizer=optimizer, every_s=1e-6)
    step = snapshot.load() or 0
    parallel = DistributedDataParallel(model)
    with (folder / f"{node}.{os.getpid()}").open("w", 1) as log:
        while True:
            parallel(torch.randn(8, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            print(time.monotonic(), dist.get_world_size(), step, file=log)
            snapshot.save(step)
            if elastic.must_save():
                elastic.saved()
            time.sleep(0.2)  # the processors are for all nodes


if __name__ == "__main__":
    main()
