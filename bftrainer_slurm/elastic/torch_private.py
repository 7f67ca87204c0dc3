"""The private places of torch that are used: all of them, and nowhere else.

``SEEN`` are the versions on which the tests have run. Where a place is missing a script is
restarted at changes instead, see ``members``. (FSDP2's are in ``sharded``: it has no such way.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, MutableMapping
from datetime import timedelta
from functools import cache
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import HashStore, TCPStore, Work  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

from bftrainer_slurm.elastic.processes import killed_after

SEEN = ("2.6", "2.9", "2.13", "2.14", "2.15")
_PLACES = (
    "torch._C._distributed_c10d.OpType",
    "torch.distributed.ProcessGroup._register_backend",
    "torch.distributed.ProcessGroup._set_group_name",
    "torch.distributed.Work._get_op_type",
    "torch.distributed.distributed_c10d._set_pg_timeout",
    "torch.distributed.distributed_c10d._world.group_count",
    "torch.distributed.distributed_c10d._world.pg_names",
)
# Those of ``functional``: without them DTensor's collectives are torch's own.
FUNCTIONAL = (
    "torch._C._distributed_c10d.PythonCallbackWork",
    "torch._C._distributed_c10d._register_work",
    "torch.distributed.all_gather_single",
    "torch.distributed.distributed_c10d._resolve_process_group",
)


def missing(places: Collection[str] = _PLACES) -> str | None:
    """Return the first place that this torch does not have; None: it has them all."""
    return next((place for place in places if not _is_there(place)), None)


def _is_there(place: str) -> bool:
    found: Any = torch
    for name in place.split(".")[1:]:
        if not hasattr(found, name):
            return False
        found = getattr(found, name)
    return True


def end_workers_within(seconds: float, begins: Callable[[], None]) -> bool:
    """Let this process's torchrun wait no longer for processes that it tells to end.

    Its own 30 s are fixed where it calls ``close`` at a change (``--shutdown-timeout``, which 2.13
    has, is for its own end). ``begins`` is called before. Returns False where ``close`` is not
    there: then all stays as it is.
    """
    from torch.distributed.elastic.multiprocessing.api import PContext

    close: Any = getattr(PContext, "close", None)
    if close is None:
        return False

    def close_within(context: Any, *arguments: Any, **options: Any) -> None:
        begins()
        with killed_after(seconds, context.pids().values()):
            close(context, *arguments, **options)

    PContext.close = close_within  # type: ignore[assignment, method-assign]
    return True


def open_store(host: str, port: int, hosts: bool, timeout: timedelta) -> TCPStore:
    """Open a store, or connect to one; its calls take so long at most.

    Raises:
        RuntimeError: it cannot be.
    """
    return TCPStore(
        *(host, port, None, hosts),
        timeout=timeout,
        wait_for_workers=False,
        use_libuv=has_libuv(),
    )


@cache
def has_libuv() -> bool:
    """Return whether torch was built with libuv: Debian's is not, and says so only when asked."""
    try:
        TCPStore("localhost", 0, is_master=True, wait_for_workers=False, use_libuv=True)
    except RuntimeError as error:
        return "libuv" not in str(error)
    return True


def set_libuv(environment: MutableMapping[str, str]) -> None:
    """Say that torch is to do without libuv where it lacks it; it would fail instead."""
    if not has_libuv():
        environment.setdefault("USE_LIBUV", "0")


def without_buffers() -> dict[str, Any]:
    """Return the option by which DDP's forward pass does not share buffers: 2.13 renamed it."""
    options = signature(DistributedDataParallel).parameters
    new = "forward_sync_buffers" in options
    return {"forward_sync_buffers" if new else "broadcast_buffers": False}


def was_used(scaler: torch.amp.GradScaler) -> bool:
    """Return whether a gradient scaler has ever scaled a loss; yes where that cannot be seen."""
    return getattr(scaler, "_scale", True) is not None


def groups_of_process() -> list[dist.ProcessGroup]:
    """Return the process groups of this process, the newest first: all, not only the trainer's."""
    names = dist.distributed_c10d._world.pg_names
    return sorted(names, key=lambda group: names[group], reverse=True)


def count_groups_anew() -> None:
    """Let the next group be called as its peers call theirs: one that failed would count."""
    dist.distributed_c10d._world.group_count = 0


def give_torchs_own_time(group: dist.ProcessGroup | None) -> None:
    """Let a group's collectives take as long as torch lets them by default."""
    dist.distributed_c10d._set_pg_timeout(dist.distributed_c10d.default_pg_timeout, group)


def group_of_one(kinds: Collection[str], timeout: timedelta) -> dist.ProcessGroup:
    """Return a group of this process alone for these kinds of device, beside the default one."""
    store = HashStore()
    alone = dist.ProcessGroup(store, 0, 1)
    gloo = dist.ProcessGroupGloo(store, 0, 1, timeout)
    for kind in sorted(kinds):
        alone._register_backend(torch.device(kind), dist.ProcessGroup.BackendType.GLOO, gloo)
    alone._set_group_name("bftrainer-alone")  # type: ignore[arg-type]
    return alone


def group_named(group: str | dist.ProcessGroup) -> dist.ProcessGroup:
    """Return the group that a functional collective names."""
    if isinstance(group, dist.ProcessGroup):
        return group
    return dist.distributed_c10d._resolve_process_group(group)  # type: ignore[attr-defined, arg-type]


def wait_for_tensor_by(tensor: Tensor, wait: Callable[[timedelta], bool]) -> None:
    """Let torch's ``wait_tensor`` call this, where it would wait in C++."""
    from torch._C._distributed_c10d import PythonCallbackWork, _register_work

    _register_work(tensor, PythonCallbackWork(wait))


def is_of_kind(work: Work, kinds: Collection[str]) -> bool:
    """Return whether a collective is one of these: ``SEND``, ``RECV``, ..."""
    from torch._C._distributed_c10d import OpType  # type: ignore[attr-defined]

    found: int = work._get_op_type()  # type: ignore[attr-defined]
    return any(found == int(getattr(OpType, kind)) for kind in kinds)
