#!/bin/bash
#SBATCH --job-name=lightning
#SBATCH --bftrainer
#SBATCH --nodes=1-4
# The same script runs without --bftrainer: srun starts one agent a node, torchrun does the rest.
srun torchrun train.py --folder "${FOLDER:-output}"
