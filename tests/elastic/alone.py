"""Trainers in a test's own process: a script's process has one, a test's has one after another."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist

from bftrainer_slurm.elastic.inprocess.peers import Peers


@contextmanager
def as_new_process() -> Iterator[None]:
    """Let this process have neither a trainer nor a process group, before and afterwards."""
    _forget()
    try:
        yield
    finally:
        _forget()


def _forget() -> None:
    Peers.made = False
    if dist.is_initialized():
        dist.destroy_process_group()
