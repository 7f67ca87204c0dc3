#!/bin/bash
# launcher: Lightning
python with_lightning.py
