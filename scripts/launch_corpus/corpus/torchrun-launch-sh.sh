#!/bin/bash
# launcher: torchrun
srun ./launch.sh
