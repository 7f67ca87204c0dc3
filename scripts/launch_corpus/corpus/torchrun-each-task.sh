#!/bin/bash
# launcher: torchrun
#SBATCH --ntasks-per-node=2
srun torchrun --nproc_per_node=1 --nnodes="$SLURM_NTASKS" --node_rank=0 \
    --master_addr="$(hostname)" train.py
