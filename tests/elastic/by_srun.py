"""ddp.py as ``srun python`` starts it: srun says its rank, and it names a head node."""

import os
import runpy
from pathlib import Path

import torch.distributed as dist

rank, tasks = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
nodes = os.environ["SLURM_JOB_NODELIST"].split(",")
assert len(nodes) * int(os.environ.get("SLURM_NTASKS_PER_NODE", "1")) == tasks
os.environ["MASTER_ADDR"] = "head-of-an-ordinary-job"
init = dist.init_process_group
dist.init_process_group = lambda backend: init(
    backend, f"tcp://{nodes[0]}:1", rank=rank, world_size=tasks
)
runpy.run_path(str(Path(__file__).with_name("ddp.py")), run_name="__main__")
