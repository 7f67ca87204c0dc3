#!/bin/bash
# launcher: torchrun
srun torchrun --nproc_per_node=1 train.py --steps 20
srun torchrun --nproc_per_node=1 train.py
