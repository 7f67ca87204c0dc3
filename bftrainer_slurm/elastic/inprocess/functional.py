"""DTensor's collectives on gloo, waited for in Python: torch waits for them in C++ (see ``waits``).

So it gathers a sharded state, and clips gradients. Other functional collectives stay torch's.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Work

from bftrainer_slurm.elastic.torch_private import group_named, wait_for_tensor_by


def wait_in_python() -> torch.library.Library:
    """Replace three of this process's functional collectives, while what it returns is kept."""
    library = torch.library.Library("_c10d_functional", "IMPL")  # type: ignore[no-untyped-call]
    for collective in (all_gather_into_tensor, all_reduce, reduce_scatter_tensor):
        library.impl(collective.__name__, collective, "CPU")  # type: ignore[no-untyped-call]
    return library


def all_gather_into_tensor(part: Tensor, world: int, group: str | dist.ProcessGroup) -> Tensor:
    """Begin to put the ranks' parts one after the other, in the first dimension."""
    whole = part.new_empty((world * part.shape[0], *part.shape[1:]))
    work = dist.all_gather_single(whole, part.contiguous(), group=group_named(group), async_op=True)
    return _waited_for(whole, work)


def all_reduce(tensor: Tensor, op: str, group: str | dist.ProcessGroup) -> Tensor:
    """Begin to reduce the ranks' tensors to one; ``op``: "sum", or another of torch's."""
    reduced = tensor.clone(memory_format=torch.contiguous_format)
    return _waited_for(reduced, _begin_to_reduce(reduced, op, group_named(group)))


def reduce_scatter_tensor(
    tensor: Tensor, op: str, world: int, group: str | dist.ProcessGroup
) -> Tensor:
    """Begin to get this rank's part, along the first dimension, of what ``all_reduce`` returns."""
    ranks = group_named(group)
    reduced = tensor.clone(memory_format=torch.contiguous_format)
    work = _begin_to_reduce(reduced, op, ranks)  # as gloo does it
    own = torch.empty_like(reduced.chunk(world)[ranks.rank()])
    return _waited_for(own, work, lambda: own.copy_(reduced.chunk(world)[ranks.rank()]))


def _begin_to_reduce(tensor: Tensor, op: str, group: dist.ProcessGroup) -> Work:
    kind = getattr(dist.ReduceOp, op.upper())
    work: Work = dist.all_reduce(tensor, kind, group, async_op=True)
    return work


def _waited_for(tensor: Tensor, work: Work, then: Callable[[], object] = lambda: None) -> Tensor:
    """Let torch's ``wait_tensor`` wait for a tensor's collective in Python, and finish it."""

    def wait(_: timedelta) -> bool:
        work.wait()
        then()
        return True

    wait_for_tensor_by(tensor, wait)
    return tensor
