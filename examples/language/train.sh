#!/bin/bash
#SBATCH --job-name=language
#SBATCH --bftrainer
#SBATCH --nodes=1-4
# The same line runs it without --bftrainer.
srun torchrun train.py --text "${TEXT:-../../LICENSE}" --folder "${FOLDER:-.}" "$@"
