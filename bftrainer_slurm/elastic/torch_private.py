"""All uses of torch's private names are in this module.

Without one of them a script trains as it would under torchrun alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from datetime import timedelta
from functools import cache
from typing import Any

import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.multiprocessing.api import PContext
from torch.utils.data import _utils, dataloader

from bftrainer_slurm.elastic.around import around
from bftrainer_slurm.elastic.log import say


def end_workers_within(seconds: float, begins: Callable[[], None]) -> None:
    """Let this process's torchrun wait only so long for processes that it tells to end.

    At a change it calls ``close`` with a fixed 30 s (the ``--shutdown-timeout`` of 2.13 is only
    for its own end). ``begins`` is called before each ``close``.
    """

    def close_within(close: Any, workers: Any, death_sig: Any = None, timeout: float = 30) -> None:
        begins()
        close(workers, death_sig, min(timeout, seconds))

    around(PContext, "close", close_within)


def fork_workers(fork: Callable[[Sequence[str], Mapping[str, str], Sequence[str]], Any]) -> None:
    """Let torchrun take what ``fork`` returns in place of a program that it would start.

    ``fork`` gets the program's words, its environment, and the files for its stdout and stderr (an
    empty one: as this process's). It returns None where torchrun shall start the program.
    """
    from torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler import (
        SubprocessHandler,
    )

    if not hasattr(SubprocessHandler, "_popen"):
        say("this torch starts each process anew, so a change of nodes takes longer than it need")
        return

    def begin(popen: Any, handler: Any, arguments: Sequence[str], env: Mapping[str, str]) -> Any:
        outputs = [file.name if file else "" for file in (handler._stdout, handler._stderr)]
        return fork(arguments, env, outputs) or popen(handler, arguments, env)

    around(SubprocessHandler, "_popen", begin)


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


def keep_groups() -> None:
    """Let ``torch.distributed.destroy_process_group`` leave the groups' threads alone.

    DDP's reducer has the last reference to a group, and destroys it while it holds the GIL. It
    then waits for gloo's threads, one of which may wait for the GIL to free the last collective's
    tensors. So a script that ended with barrier(), destroy_process_group() hung once in a while
    (torch 2.13; pytorch/pytorch#56297).
    """
    if not hasattr(getattr(dist.distributed_c10d, "_world", None), "pg_names"):
        return
    kept: set[dist.ProcessGroup] = set()

    def destroy_but_keep(destroy: Callable[..., None], *group: Any, **named: Any) -> None:
        kept.update(dist.distributed_c10d._world.pg_names)
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


def begin_data_workers(begin: Callable[[], None]) -> None:
    """Call ``begin`` first in each worker that a DataLoader forks, if torch has a place for it.

    It comes after torch's own handlers: at a SIGTERM of another process than its parent, that of
    torch ends the worker.
    """
    handlers = getattr(_utils, "signal_handling", None)
    if not hasattr(handlers, "_set_worker_signal_handlers"):
        return

    def set_and_begin(set_handlers: Callable[[], None]) -> None:
        set_handlers()
        begin()

    around(handlers, "_set_worker_signal_handlers", set_and_begin)
