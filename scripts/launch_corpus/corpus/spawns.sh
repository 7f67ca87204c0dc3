#!/bin/bash
# launcher: mp.spawn
# told: the script itself (torch.multiprocessing) starts its processes
srun python spawning.py
