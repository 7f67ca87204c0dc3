"""Frameworks that see one process where there are many: the trainer is what knows of the others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

# By which accelerate, Lightning and MPI's launchers say that there are other processes.
_VARIABLES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    *("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"),
)


@contextmanager
def alone() -> Iterator[None]:
    """Hide the other processes: what is made in here neither meets nor counts them."""
    hidden = {name: os.environ.pop(name) for name in _VARIABLES if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)


def agree(loss: float, weight: float, wishes_stop: bool) -> tuple[float, bool]:
    """Return all ranks' mean loss in a step, and whether any of them wishes to stop.

    ``weight`` is of this rank's samples in the step. Without any its loss may be nan.
    """
    told = torch.tensor([loss * weight if weight else 0.0, float(wishes_stop)])
    dist.all_reduce(told)
    return float(told[0]), bool(told[1])
