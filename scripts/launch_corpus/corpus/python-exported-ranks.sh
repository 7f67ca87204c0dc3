#!/bin/bash
# launcher: srun python
export MASTER_ADDR=$(hostname) MASTER_PORT=29500
srun --ntasks=2 bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
    python -u train.py'
