"""Records each optimizer step of a script that knows nothing of it; for BFTRAINER_PRELOAD.

A line a step, "time world step", in steps/NODE.PID of the folder that is the script's last word.
Adam's state says which step of the training it is, as it is saved and restored with it.
"""

import os
import sys
import time
from functools import cache
from pathlib import Path
from typing import IO

import torch.distributed as dist
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook


@cache
def _file(process: int) -> IO[str]:
    folder = Path(sys.argv[-1], "steps")
    folder.mkdir(exist_ok=True)
    return (folder / f"{os.environ['SLURMD_NODENAME']}.{process}").open("w", 1)


def _record(optimizer: Optimizer, *_: object) -> None:
    step = int(next(iter(optimizer.state.values()), {}).get("step", 0))
    # Neither the warm-up's SGD, nor a step by which torch only makes an optimizer's state.
    if step and optimizer.param_groups[0]["lr"]:
        world = dist.get_world_size() if dist.is_initialized() else 1
        print(time.monotonic(), world, step, file=_file(os.getpid()))


register_optimizer_step_post_hook(_record)
