"""A plain script that saves when told to, in SAVE_S seconds, and only then; else as ddp.py.

A file with its steps stays open until an exit handler adds a last line.
"""

import atexit
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
    parallel = DistributedDataParallel(nn.Linear(64, 64))
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    checkpoint = folder / "checkpoint"
    step = torch.tensor([int(checkpoint.read_text()) if checkpoint.exists() else 0])
    dist.broadcast(step, src=0)
    results = (folder / f"results-{node}-{os.getpid()}").open("w")
    atexit.register(print, "at exit", file=results)
    with (folder / f"{node}.{os.getpid()}").open("w", 1) as log:
        while True:
            parallel(torch.randn(8, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            elastic.step(samples=8 * dist.get_world_size(), number=int(step))
            must_save = elastic.must_save()
            # Only from its first call on is a process asked: who waits for a step waits for that.
            print(time.monotonic(), dist.get_world_size(), step.item(), file=log)
            print(step.item(), file=results)
            if must_save:
                if dist.get_rank() == 0:
                    time.sleep(float(os.environ.get("SAVE_S", "0")))
                    beside = folder / "checkpoint.new"
                    beside.write_text(str(step.item()))
                    beside.replace(checkpoint)
                elastic.saved()
            time.sleep(0.2)  # the processors are for all nodes


if __name__ == "__main__":
    main()
