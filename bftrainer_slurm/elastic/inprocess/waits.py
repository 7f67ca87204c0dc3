"""A wait for one of gloo's collectives checks now and then whether the collective may still end.

``Trainer`` does not block in its own collectives. This is for those of the script, of FSDP2, and of
DTensor, which gathers a sharded state and clips gradients: ``Work.wait()`` would return after half
an hour (see ``Connections.shut_down``), and torch waits for DTensor's in C++. Other functional
collectives stay torch's.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Work

from bftrainer_slurm.elastic.around import around
from bftrainer_slurm.elastic.torch_private import group_named, is_of_kind, wait_for_tensor_by

_LOOK = timedelta(seconds=1)
# A wait with a timeout for the first three ends them, and their connection. Reduce-scatters are
# UNKNOWN here; they ignore a timeout, and never say that they are complete. Only NCCL has the last.
_NOT_LOOKED_AT = ("SEND", "RECV", "RECVANYSOURCE", "UNKNOWN", "COALESCED")


def look_up(check: Callable[[Work], None]) -> None:
    """Replace this process's ``Work.wait``: ``check`` is asked each second, and may raise.

    NCCL's wait stays as it is. It only makes the GPU wait, and a time limit would abort the
    collective. One can tell it by its future, which is done as soon as the collective is begun.
    """

    def wait_and_look_up(wait: Any, work: Any, *arguments: Any, **options: Any) -> bool:
        plainly = arguments or options or is_of_kind(work, _NOT_LOOKED_AT)
        if plainly or work.get_future().done():
            return bool(wait(work, *arguments, **options))
        while True:
            try:
                return bool(wait(work, _LOOK))
            except RuntimeError:  # a timeout, or its own failure, which the next wait raises again
                if work.is_completed():
                    return bool(wait(work))
                check(work)

    around(Work, "wait", wait_and_look_up)


def wait_in_python() -> torch.library.Library:
    """Replace three of this process's functional collectives, while the result is referenced."""
    library = torch.library.Library("_c10d_functional", "IMPL")  # type: ignore[no-untyped-call]
    for collective in (all_gather_into_tensor, all_reduce, reduce_scatter_tensor):
        library.impl(collective.__name__, collective, "CPU")  # type: ignore[no-untyped-call]
    return library


def all_gather_into_tensor(part: Tensor, world: int, group: str | dist.ProcessGroup) -> Tensor:
    """Begin to join the ranks' parts along the first dimension."""
    whole = part.new_empty((world * part.shape[0], *part.shape[1:]))
    work = dist.all_gather_single(whole, part.contiguous(), group=group_named(group), async_op=True)
    return _waited_for(whole, work)


def all_reduce(tensor: Tensor, op: str, group: str | dist.ProcessGroup) -> Tensor:
    """Begin to reduce the ranks' tensors to one; ``op``: "sum" or another of torch's names."""
    reduced = tensor.clone(memory_format=torch.contiguous_format)
    return _waited_for(reduced, _begin_to_reduce(reduced, op, group_named(group)))


def reduce_scatter_tensor(
    tensor: Tensor, op: str, world: int, group: str | dist.ProcessGroup
) -> Tensor:
    """Begin to get this rank's part, along the first dimension, of the result of ``all_reduce``."""
    ranks = group_named(group)
    reduced = tensor.clone(memory_format=torch.contiguous_format)
    work = _begin_to_reduce(reduced, op, ranks)  # gloo's own does the same
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
