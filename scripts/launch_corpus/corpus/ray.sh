#!/bin/bash
# launcher: ray
# told: none has joined
export PATH=$PWD/programs/bin:$PATH
ray start --head --block
