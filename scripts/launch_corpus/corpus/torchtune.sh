#!/bin/bash
# launcher: torchtune
export PATH=$PWD/programs/bin:$PATH
srun tune run --nproc_per_node 2 train.py
