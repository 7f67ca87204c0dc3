#!/bin/bash
# launcher: ray
# message: none has joined
export PATH=$PWD/programs/bin:$PATH
ray start --head --block
