#!/bin/bash
# launcher: srun python
head=$(hostname)
srun bash -c "python train.py --url tcp://$head:29500 --rank \$SLURM_PROCID --world \$SLURM_NTASKS"
