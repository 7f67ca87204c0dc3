#!/bin/bash
# launcher: mpirun
# message: starts its processes
export PATH=$PWD/programs/bin:$PATH
mpirun -np 2 python train.py
