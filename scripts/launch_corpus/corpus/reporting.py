"""A tiny training on the CPU that says each second who trains with whom; it never ends itself."""

import json
import os
import time
import uuid
from pathlib import Path

import torch
import torch.distributed as dist

FOLDER = Path(__file__).resolve().parent / "steps"
PAUSE_S = 0.1  # the processors are for all nodes
_EACH_S = 1.0


class Report:
    """Writes a step a second, with this process's group and rank, into a log of steps."""

    def __init__(self, rank: int = 0, world: int = 1) -> None:
        token = [uuid.uuid4().hex[:12]]
        if world > 1:
            dist.broadcast_object_list(token, src=0)
        self._world, self._group = world, json.dumps({"group": token[0], "rank": rank})
        FOLDER.mkdir(exist_ok=True)
        self._path = FOLDER / f"{os.environ.get('SLURMD_NODENAME', 'here')}.{os.getpid()}"
        self._due_s, self._done = 0.0, 0

    def step(self) -> None:
        """Take a note of a step."""
        self._done += 1
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + _EACH_S
            with self._path.open("a") as file:
                print(time.monotonic(), self._world, self._done, self._group, file=file)


def train(steps: int | None = None) -> None:
    """Train, with the group of processes if there is one: for ever, or some steps unreported."""
    torch.set_num_threads(1)
    grouped = dist.is_initialized()
    report = Report(dist.get_rank(), dist.get_world_size()) if grouped else Report()
    model: torch.nn.Module = torch.nn.Linear(8, 8)
    if grouped:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    done = 0
    while steps is None or done < steps:
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        done += 1
        if steps is None:
            report.step()
        time.sleep(PAUSE_S)
