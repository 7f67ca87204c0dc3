#!/bin/bash
# launcher: torchrun
nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
address=$(srun --nodes=1 --ntasks=1 -w "${nodes[0]}" hostname --ip-address)
srun torchrun --nnodes=2 --nproc_per_node=2 --rdzv_id=101 --rdzv_backend=c10d \
    --rdzv_endpoint="$address:29500" train.py
