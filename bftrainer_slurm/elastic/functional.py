"""DTensor's collectives on gloo, waited for in Python: torch waits for them in C++ (see ``waits``).

So it gathers a sharded state, and clips gradients. Other functional collectives stay torch's.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


def wait_in_python() -> torch.library.Library:
    """Replace this process's functional collectives, for as long as what it returns is kept."""
    library = torch.library.Library("_c10d_functional", "IMPL")  # type: ignore[no-untyped-call]
    for collective in (all_gather_into_tensor, all_reduce, reduce_scatter_tensor):
        library.impl(collective.__name__, collective, "CPU")  # type: ignore[no-untyped-call]
    return library


def all_gather_into_tensor(part: Tensor, world: int, group: str | dist.ProcessGroup) -> Tensor:
    """Return the ranks' parts, one after the other in the first dimension."""
    whole = part.new_empty((world * part.shape[0], *part.shape[1:]))
    dist.all_gather_single(whole, part.contiguous(), group=_resolved(group))
    return whole


def all_reduce(tensor: Tensor, op: str, group: str | dist.ProcessGroup) -> Tensor:
    """Return the ranks' tensors, reduced to one; ``op``: "sum", or another of torch's."""
    reduced = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(reduced, getattr(dist.ReduceOp, op.upper()), _resolved(group))
    return reduced


def reduce_scatter_tensor(
    tensor: Tensor, op: str, world: int, group: str | dist.ProcessGroup
) -> Tensor:
    """Return this rank's part, along the first dimension, of what ``all_reduce`` returns."""
    # gloo's own is no other.
    return all_reduce(tensor, op, group).chunk(world)[_resolved(group).rank()].clone()


def _resolved(group: str | dist.ProcessGroup) -> dist.ProcessGroup:
    if isinstance(group, dist.ProcessGroup):
        return group
    return dist.distributed_c10d._resolve_process_group(group)  # type: ignore[attr-defined, arg-type]
