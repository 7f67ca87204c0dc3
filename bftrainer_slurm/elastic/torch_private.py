"""All uses of torch's private names ("places") are in this module.

``SEEN`` are the versions on which the tests have run. If one of ``PLACES`` is missing, a script is
restarted at changes instead, see ``peers``; ``ShardedTrainer`` needs those of FSDP2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, MutableMapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache
from importlib import import_module
from inspect import signature
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import HashStore, Store, TCPStore, Work  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import dataloader

from bftrainer_slurm.elastic.around import around
from bftrainer_slurm.elastic.processes import killed_after

SEEN = ("2.6", "2.9", "2.13", "2.14", "2.15")
GROUPS = ("torch.distributed.distributed_c10d._world.pg_names",)
PLACES = (
    "torch._C._distributed_c10d.OpType",
    "torch.distributed.ProcessGroup._register_backend",
    "torch.distributed.ProcessGroup._set_group_name",
    "torch.distributed.Work._get_op_type",
    "torch.distributed.distributed_c10d._set_pg_timeout",
    "torch.distributed.distributed_c10d._world.group_count",
    *GROUPS,
)
# For ``waits.wait_in_python``: without them DTensor's collectives are torch's own.
FUNCTIONAL = (
    "torch._C._distributed_c10d.PythonCallbackWork",
    "torch._C._distributed_c10d._register_work",
    "torch.distributed.all_gather_single",
    "torch.distributed.distributed_c10d._resolve_process_group",
)
# For FSDP2.
SHARDING = (
    "torch.distributed.fsdp.FSDPModule",
    "torch.distributed.fsdp._fully_shard._fsdp_api.ReduceScatter",
    "torch.distributed.fsdp._fully_shard._fsdp_collectives.DefaultAllocMixin",
)


def missing(places: Collection[str] = PLACES) -> str | None:
    """Return the first place that this torch does not have; None: it has them all."""
    return next((place for place in places if not _is_there(place)), None)


def _is_there(place: str) -> bool:
    found: Any = torch
    for name in place.split(".")[1:]:
        if isinstance(found, ModuleType) and not hasattr(found, name):
            with suppress(ImportError):  # a module that torch has not imported yet
                import_module(f"{found.__name__}.{name}")
        if not hasattr(found, name):
            return False
        found = getattr(found, name)
    return True


def end_workers_within(seconds: float, begins: Callable[[], None]) -> bool:
    """Let this process's torchrun wait only so long for processes that it tells to end.

    At a change it calls ``close`` with a fixed 30 s (the ``--shutdown-timeout`` of 2.13 is only
    for its own end). ``begins`` is called before each ``close``. Returns False, and changes
    nothing, if this torch has no ``close``.
    """
    from torch.distributed.elastic.multiprocessing.api import PContext

    if not hasattr(PContext, "close"):
        return False

    def close_within(close: Any, context: Any, *arguments: Any, **options: Any) -> None:
        begins()
        with killed_after(seconds, context.pids().values()):
            close(context, *arguments, **options)

    around(PContext, "close", close_within)
    return True


def open_store(host: str, port: int, hosts: bool, timeout: timedelta) -> TCPStore:
    """Open a store, or connect to one; its calls take ``timeout`` at most.

    Raises:
        RuntimeError: it cannot be opened or reached.
    """
    return TCPStore(
        *(host, port, None, hosts),
        timeout=timeout,
        wait_for_workers=False,
        use_libuv=has_libuv(),
    )


@cache
def has_libuv() -> bool:
    """Return whether torch was built with libuv: Debian's is not; only a trial shows it."""
    try:
        TCPStore("localhost", 0, is_master=True, wait_for_workers=False, use_libuv=True)
    except RuntimeError as error:
        return "libuv" not in str(error)
    return True


def set_libuv(environment: MutableMapping[str, str]) -> None:
    """Tell torch not to use libuv if it was built without; it would fail otherwise."""
    if not has_libuv():
        environment.setdefault("USE_LIBUV", "0")


def without_buffers() -> dict[str, Any]:
    """Return the option that stops DDP's forward pass from sharing buffers: 2.13 renamed it."""
    options = signature(DistributedDataParallel).parameters
    new = "forward_sync_buffers" in options
    return {"forward_sync_buffers" if new else "broadcast_buffers": False}


def was_used(scaler: torch.amp.GradScaler) -> bool:
    """Return whether a gradient scaler has ever scaled a loss; True if that cannot be seen."""
    return getattr(scaler, "_scale", True) is not None


def keep_groups() -> None:
    """Let ``torch.distributed.destroy_process_group`` leave the groups' threads alone.

    Only for scripts in forked workers; ``Trainer`` destroys the groups that it forms by itself.
    DDP's reducer has the last reference to a group, and destroys it while it holds the GIL. It
    then waits for gloo's threads, one of which may wait for the GIL to free the last collective's
    tensors. So a script that ended with barrier(), destroy_process_group() hung once in a while
    (torch 2.13; pytorch/pytorch#56297). Without ``GROUPS`` it is left as it is.
    """
    if missing(GROUPS) is not None:
        return
    kept: set[dist.ProcessGroup] = set()

    def destroy_but_keep(destroy: Callable[..., None], *group: Any, **named: Any) -> None:
        kept.update(groups_of_process())
        destroy(*group, **named)

    around(dist, "destroy_process_group", destroy_but_keep)


def watch_batches(watch: Callable[[Any], None]) -> None:
    """Call ``watch`` with each batch that a DataLoader gives, if torch has a place for it."""
    iterator: Any = getattr(dataloader, "_BaseDataLoaderIter", None)
    if not hasattr(iterator, "__next__"):
        return

    def give_and_tell(give: Callable[[Any], Any], batches: Any) -> Any:
        batch = give(batches)
        watch(batch)
        return batch

    around(iterator, "__next__", give_and_tell)


def groups_of_process() -> list[dist.ProcessGroup]:
    """Return the process groups of this process, the newest first: all, not only the trainer's."""
    names = dist.distributed_c10d._world.pg_names
    return sorted(names, key=lambda group: names[group], reverse=True)


def abort_together(groups: Sequence[dist.ProcessGroup]) -> None:
    """Abort NCCL's groups, all of them and at once.

    One that is left out could wait for a kernel of another group; and one after the other, an abort
    may wait for another group's (pytorch/pytorch#119797).
    """
    backend = next((one for one in map(_on_gpu, groups) if hasattr(one, "_group_start")), None)
    if backend is not None:
        backend._group_start()
    try:
        for group in groups:
            with suppress(RuntimeError):  # over already
                group.abort()
    finally:
        if backend is not None:
            with suppress(RuntimeError):  # one of them was over already
                backend._group_end()


def _on_gpu(group: dist.ProcessGroup) -> Any:
    with suppress(RuntimeError):  # it has none
        return group._get_backend(torch.device("cuda"))
    return None


def make_default(backend: str, store: Store, rank: int, world: int, connect_s: float) -> None:
    """Make a new default process group in place of the current one."""
    if dist.is_initialized() and backend == "gloo":
        dist.distributed_c10d.destroy_process_group()  # not the one of ``keep_groups``
    elif dist.is_initialized():  # all groups, without ``shutdown``, which may wait
        dist.distributed_c10d._abort_process_group(dist.group.WORLD)
    # For the same name as on its peers: torch counts groups that failed, too.
    dist.distributed_c10d._world.group_count = 0
    timeout = timedelta(seconds=connect_s)
    dist.init_process_group(backend, None, timeout, world, rank, store)
    give_torchs_own_time(dist.group.WORLD)  # now that its connections are there


def give_torchs_own_time(group: dist.ProcessGroup | None) -> None:
    """Give a group's collectives torch's default timeout."""
    dist.distributed_c10d._set_pg_timeout(dist.distributed_c10d.default_pg_timeout, group)


def group_of_one(kinds: Collection[str]) -> dist.ProcessGroup:
    """Return a group of only this process for these kinds of device, beside the default group."""
    store = HashStore()
    alone = dist.ProcessGroup(store, 0, 1)
    gloo = dist.ProcessGroupGloo(store, 0, 1, timedelta(minutes=1))
    for kind in sorted(kinds):
        alone._register_backend(torch.device(kind), dist.ProcessGroup.BackendType.GLOO, gloo)
    alone._set_group_name("bftrainer-alone")  # type: ignore[arg-type]
    return alone


def group_named(group: str | dist.ProcessGroup) -> dist.ProcessGroup:
    """Return the group that a functional collective names."""
    if isinstance(group, dist.ProcessGroup):
        return group
    return dist.distributed_c10d._resolve_process_group(group)  # type: ignore[attr-defined, arg-type]


def sum_in_python(model: nn.Module) -> int:
    """Have FSDP2 sum gradients by an all-reduce, and wait in Python; return its number of parts.

    By itself it divides them by the world, and waits in C++ (see ``waits``).
    """
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter
    from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllocMixin

    class AllReduce(DefaultAllocMixin, ReduceScatter):
        def __call__(
            self,
            output_tensor: Tensor,
            input_tensor: Tensor,
            group: dist.ProcessGroup,
            op: Any,
            async_op: bool = False,
        ) -> None:
            """Reduce the input, in place, and take this rank's part of it."""
            dist.all_reduce(input_tensor, op, group)
            output_tensor.copy_(input_tensor.chunk(group.size())[group.rank()])

    parts = [one for one in model.modules() if isinstance(one, FSDPModule)]
    for part in parts:
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)
        part.set_custom_reduce_scatter(AllReduce())
    return len(parts)


def wait_for_tensor_by(tensor: Tensor, wait: Callable[[timedelta], bool]) -> None:
    """Let torch's ``wait_tensor`` call ``wait``, instead of a wait in C++."""
    from torch._C._distributed_c10d import PythonCallbackWork, _register_work

    _register_work(tensor, PythonCallbackWork(wait))


def is_of_kind(work: Work, kinds: Collection[str]) -> bool:
    """Return whether a collective is one of these: ``SEND``, ``RECV``, ..."""
    from torch._C._distributed_c10d import OpType  # type: ignore[attr-defined]

    found: int = work._get_op_type()  # type: ignore[attr-defined]
    return any(found == int(getattr(OpType, kind)) for kind in kinds)
