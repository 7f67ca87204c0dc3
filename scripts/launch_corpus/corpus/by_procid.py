"""Takes its rank from srun, and the head node from Slurm's list of nodes."""

import os
import subprocess

import torch.distributed as dist
from reporting import train

if __name__ == "__main__":
    nodes = subprocess.check_output(
        ["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]], text=True
    )
    os.environ["MASTER_ADDR"] = nodes.split()[0]
    os.environ["MASTER_PORT"] = "29500"
    rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    dist.init_process_group("gloo", rank=rank, world_size=world)
    train()
