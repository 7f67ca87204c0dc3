#!/bin/bash
# launcher: accelerate launch
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun bash -c "accelerate launch --multi_gpu --num_processes $((SLURM_NNODES * 2)) \
    --num_machines $SLURM_NNODES --machine_rank \$SLURM_PROCID --main_process_ip $MASTER_ADDR \
    --main_process_port 29500 with_accelerate.py"
