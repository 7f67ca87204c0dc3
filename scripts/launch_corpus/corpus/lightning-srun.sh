#!/bin/bash
# launcher: Lightning
srun python with_lightning.py
