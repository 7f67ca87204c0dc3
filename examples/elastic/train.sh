#!/bin/bash
#SBATCH --job-name=digits-in-process
#SBATCH --bftrainer
#SBATCH --nodes=1-4
# train.py re-forms in process; the same line runs it without --bftrainer.
srun torchrun train.py
