#!/bin/bash
#SBATCH --job-name=language
#SBATCH --bftrainer
#SBATCH --nodes=1-4
# train.py rescales in process; the same line runs it without --bftrainer.
srun torchrun train.py --text "${TEXT:-../../LICENSE}" --folder "${FOLDER:-.}" "$@"
