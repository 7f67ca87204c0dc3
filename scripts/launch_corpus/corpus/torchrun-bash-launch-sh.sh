#!/bin/bash
# launcher: torchrun
bash launch.sh
