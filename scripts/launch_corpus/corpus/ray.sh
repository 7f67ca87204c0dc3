#!/bin/bash
# launcher: ray
# message: do not train together
export PATH=$PWD/programs/bin:$PATH
ray start --head --block
