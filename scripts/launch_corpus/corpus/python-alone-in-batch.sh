#!/bin/bash
# launcher: python
export MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 RANK=0 WORLD_SIZE=1
python train.py
