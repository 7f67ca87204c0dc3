#!/bin/bash
# launcher: torchrun
python -c 'import torch; print(torch.__version__)'
srun python -c 'import torch; print(torch.zeros(1))'
srun torchrun --nproc_per_node=1 train.py
