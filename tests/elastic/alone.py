"""Trainers in a test's own process: a script's process has one, a test's has one after another."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist

from bftrainer_slurm.elastic.inprocess.peers import Peers


@contextmanager
def as_new_process() -> Iterator[None]:
    """Let this process make a trainer, and forget afterwards that it has."""
    try:
        yield
    finally:
        Peers.made = False
        if dist.is_initialized():
            dist.destroy_process_group()
