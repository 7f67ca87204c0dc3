"""Takes its ranks from the environment, as torchrun and others set it."""

import argparse

import torch.distributed as dist
from reporting import train

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", "--local-rank", type=int, default=-1)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--url")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--world", type=int)
    options = parser.parse_args()
    if options.url is None:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group(
            "gloo", init_method=options.url, rank=options.rank, world_size=options.world
        )
    train(options.steps)
