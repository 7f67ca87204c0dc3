#!/bin/bash
# launcher: python, one process
# told: the script is one process
srun python alone.py
