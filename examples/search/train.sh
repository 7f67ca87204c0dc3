#!/bin/bash
#SBATCH --bftrainer
#SBATCH --nodes=1-2
# One trial; search.py submits it with the trial's folder and parameters.
srun torchrun train.py "$@"
