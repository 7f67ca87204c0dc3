"""Records each optimizer step of a script that knows nothing of it; for BFTRAINER_PRELOAD.

A line a step, "time world step", in $RECORDS/NODE.PID. Adam's state says which step of the
training it is, as it is saved and restored with it.
"""

import os
import time
from pathlib import Path
from typing import IO

import torch.distributed as dist
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

_files: dict[int, IO[str]] = {}


def _record(optimizer: Optimizer, *_: object) -> None:
    step = int(next(iter(optimizer.state.values()), {}).get("step", 0))
    # Neither the warm-up's SGD, nor a step by which torch only makes an optimizer's state.
    if not step or not optimizer.param_groups[0]["lr"]:
        return
    process = os.getpid()
    if process not in _files:
        path = Path(os.environ["RECORDS"]) / f"{os.environ['SLURMD_NODENAME']}.{process}"
        _files[process] = path.open("w", 1)
    world = dist.get_world_size() if dist.is_initialized() else 1
    print(time.monotonic(), world, step, file=_files[process])


register_optimizer_step_post_hook(_record)
