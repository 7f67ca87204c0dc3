#!/bin/bash
# launcher: python -m torch.distributed.launch
python -m torch.distributed.launch --nproc_per_node=2 --master_port=29502 train.py
