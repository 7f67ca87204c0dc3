#!/bin/bash
# launcher: torchrun
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes "$SLURM_NNODES" --nproc_per_node 2 --rdzv_id $RANDOM --rdzv_backend c10d \
    --rdzv_endpoint "$head:29500" train.py
