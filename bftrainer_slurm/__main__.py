"""Lets ``python -m bftrainer_slurm`` do what the ``bftrainer`` command does."""

from bftrainer_slurm.cli import main

main(prog_name="bftrainer")
