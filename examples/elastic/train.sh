#!/bin/bash
#SBATCH --job-name=digits-saved
#SBATCH --bftrainer
#SBATCH --nodes=1-4
# train.py saves when its nodes change; the same line runs it without --bftrainer.
srun torchrun train.py
