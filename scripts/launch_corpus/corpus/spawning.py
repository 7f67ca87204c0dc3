"""Starts the processes of its node itself."""

import torch.distributed as dist
import torch.multiprocessing as mp
from reporting import train


def one(rank: int, world: int) -> None:
    """Train as one of them."""
    dist.init_process_group(
        "gloo", init_method="tcp://127.0.0.1:29500", rank=rank, world_size=world
    )
    train()


if __name__ == "__main__":
    mp.spawn(one, args=(2,), nprocs=2)
