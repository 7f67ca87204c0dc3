#!/bin/bash
# launcher: deepspeed
export PYTHONPATH=$PYTHONPATH:$PWD/programs
srun python -c 'from deepspeed.launcher.launch import main; main()' --world_info=none train.py
