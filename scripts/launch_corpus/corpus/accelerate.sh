#!/bin/bash
# launcher: accelerate launch
accelerate launch --config_file accelerate.yaml with_accelerate.py
