#!/bin/bash
# launcher: deepspeed
export PATH=$PWD/programs/bin:$PATH PYTHONPATH=$PYTHONPATH:$PWD/programs
deepspeed --num_gpus=2 train.py
