#!/bin/bash
# launcher: mp.spawn
# message: the script itself (torch.multiprocessing)
srun python spawning.py
