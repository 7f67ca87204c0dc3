#!/bin/bash
# launcher: python, one process
# message: do not train together
srun python alone.py
