#!/bin/bash
# launcher: mp.spawn
# message: the script itself (torch.multiprocessing) starts its processes
srun python spawning.py
