#!/bin/bash
# launcher: torchrun
srun torchrun train.py
