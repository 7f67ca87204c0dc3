"""Process groups of a script stay until its process ends, even those that it destroys.

Only for scripts in forked workers: what ``Trainer`` forms anew all the time, it destroys itself.
"""

from __future__ import annotations

from functools import wraps

import torch.distributed as dist

from bftrainer_slurm.elastic.torch_private import groups_of_process


def keep() -> None:
    """Let ``torch.distributed.destroy_process_group`` leave the groups' threads alone.

    DDP's reducer has the last reference to a group, and destroys it with the GIL held: it waits
    for gloo's threads, one of which may wait for the GIL to give back the last collective's
    tensors. So a script that ended with barrier(), destroy_process_group() hung once in a while
    (torch 2.13; pytorch/pytorch#56297).
    """
    kept: set[dist.ProcessGroup] = set()
    destroy = dist.destroy_process_group

    @wraps(destroy)
    def destroy_but_keep(group: dist.ProcessGroup | None = None) -> None:
        kept.update(groups_of_process())
        destroy(group)

    dist.destroy_process_group = destroy_but_keep
