"""A plain DDP script, as small as can be, that knows nothing of elements.

Writes a line for each step (time, world, step) into FOLDER/NODE.PID, and ends when FOLDER/stop is
there; rank 0 ends only when FOLDER/saving is not. On a node with FOLDER/fail.NODE it raises, and
on as many ranks as FAILS_ON says. AT_SIGTERM: it hangs there, or exits with 0. With SAVE_S it
knows of elements: it saves only when it is told to, and that takes so many seconds.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

_AT_SIGTERM = {
    "hangs": lambda *_: time.sleep(3600),  # as Lightning's does in a broadcast
    "exits": lambda *_: sys.exit(0),  # as one does that saves then
}


def main() -> None:
    folder, node = Path(sys.argv[1]), os.environ["SLURMD_NODENAME"]
    if "AT_SIGTERM" in os.environ:
        signal.signal(signal.SIGTERM, _AT_SIGTERM[os.environ["AT_SIGTERM"]])
    dist.init_process_group("gloo")
    if str(dist.get_world_size()) == os.environ.get("FAILS_ON"):
        raise ValueError(f"a batch of 64 does not divide by {dist.get_world_size()}")
    parallel = DistributedDataParallel(nn.Linear(64, 64))
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    checkpoint, save_s = folder / "checkpoint", os.environ.get("SAVE_S")
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
            saves = save_s is None or is_told_to_save(int(step))
            # Only from its first call on is a process asked: who waits for a step waits for that.
            print(time.monotonic(), dist.get_world_size(), step.item(), file=log)
            if saves and dist.get_rank() == 0:
                time.sleep(float(save_s or 0))
                beside = folder / "checkpoint.new"
                beside.write_text(str(step.item()))
                beside.replace(checkpoint)
            if saves and save_s is not None:
                from bftrainer_slurm import elastic

                elastic.saved()
            stop[0] = (folder / "stop").exists()
            dist.all_reduce(stop, dist.ReduceOp.MAX)
            time.sleep(0.2)  # the processors are for all nodes
    rank = dist.get_rank()
    dist.destroy_process_group()
    while rank == 0 and (folder / "saving").exists():
        time.sleep(0.02)


def is_told_to_save(step: int) -> bool:
    from bftrainer_slurm import elastic

    elastic.step(samples=8 * dist.get_world_size(), number=step)
    return elastic.must_save()


if __name__ == "__main__":
    main()
