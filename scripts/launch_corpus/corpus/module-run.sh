#!/bin/bash
# launcher: python -m torch.distributed.run
head=$(hostname -s)
srun python -m torch.distributed.run --nproc_per_node=2 --nnodes=4 --rdzv_backend=c10d \
    --rdzv_endpoint="$head:29400" --max_restarts=0 train.py
