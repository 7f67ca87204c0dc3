#!/bin/bash
# launcher: srun python
srun --ntasks=2 --overlap python by_procid.py
