#!/bin/bash
# launcher: python, one process
# message: the script is one process
srun python alone.py
