#!/bin/bash
# launcher: srun python
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --partition=main
srun python by_procid.py
