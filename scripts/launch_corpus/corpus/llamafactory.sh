#!/bin/bash
# launcher: LLaMA Factory
export PATH=$PWD/programs/bin:$PATH
export FORCE_TORCHRUN=1 NNODES=$SLURM_NNODES NODE_RANK=$SLURM_NODEID NPROC_PER_NODE=2
MASTER_ADDR=$(hostname) MASTER_PORT=29500 llamafactory-cli train finetune.yaml
