#!/bin/bash
# launcher: deepspeed
#SBATCH --export=NONE
#SBATCH --ntasks-per-node=2
unset SLURM_EXPORT_ENV
export PYTHONPATH=$PYTHONPATH:$PWD/programs
srun python -c 'from deepspeed.launcher.launch import main; main()' --world_info=none train.py
