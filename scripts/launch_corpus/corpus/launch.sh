#!/bin/bash
set -euo pipefail
torchrun --nnodes=1 --nproc_per_node=2 --master_port=29501 train.py
