"""A plain DDP script, as small as can be, that knows nothing of elements.

Writes a line for each step (time, world, step) into FOLDER/NODE.PID, and ends when FOLDER/stop is
there; rank 0 ends only when FOLDER/saving is not. On a node with FOLDER/fail.NODE it raises, and
on as many ranks as FAILS_ON says, on a new node later than on the others. AT_SIGTERM: it hangs
there, or exits with 0. With SAVE_S it knows of elements: it saves only when it is told to, and that
takes so many seconds. With HAS_HELPERS it has two in sessions of their own that ignore SIGTERM, one
of them without a parent; their variable HELPS is FOLDER. With KEEPS_STATE its state is in memory,
and on no disk.
"""

import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

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
    for fork in ["--wait", "--fork"] if "HAS_HELPERS" in os.environ else []:
        helper = ["setsid", fork, "sh", "-c", "trap '' TERM; exec sleep 600"]
        subprocess.Popen(helper, env=os.environ | {"HELPS": str(folder)})
    dist.init_process_group("gloo")
    if str(dist.get_world_size()) == os.environ.get("FAILS_ON"):
        time.sleep(0 if any(folder.glob(f"{node}.*")) else 5)  # else the node may be the cause
        raise ValueError(f"a batch of 64 does not divide by {dist.get_world_size()}")
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    if keeps_state := "KEEPS_STATE" in os.environ:
        snapshot = elastic().Snapshot(model=model, optimizer=optimizer, every_s=1e-6)
    when_told = keeps_state or "SAVE_S" in os.environ
    checkpoint = folder / "checkpoint"
    begun = int(checkpoint.read_text()) if checkpoint.exists() else 0
    step = torch.tensor([(snapshot.load() or 0) if keeps_state else begun])
    parallel = DistributedDataParallel(model)
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
            saves = not when_told or is_told_to_save(int(step))
            # Only from its first call on is a process asked: who waits for a step waits for that.
            print(time.monotonic(), dist.get_world_size(), step.item(), file=log)
            if keeps_state:
                snapshot.save(int(step))
            elif saves and dist.get_rank() == 0:
                time.sleep(float(os.environ.get("SAVE_S", 0)))
                beside = folder / "checkpoint.new"
                beside.write_text(str(step.item()))
                beside.replace(checkpoint)
            if saves and when_told:
                elastic().saved()
            stop[0] = (folder / "stop").exists()
            dist.all_reduce(stop, dist.ReduceOp.MAX)
            time.sleep(0.2)  # the processors are for all nodes
    rank = dist.get_rank()
    dist.destroy_process_group()
    while rank == 0 and (folder / "saving").exists():
        time.sleep(0.02)


def is_told_to_save(step: int) -> bool:
    elastic().step(samples=8 * dist.get_world_size(), number=step)
    return bool(elastic().must_save())


def elastic() -> Any:
    return import_module("bftrainer_slurm.elastic")


if __name__ == "__main__":
    main()
