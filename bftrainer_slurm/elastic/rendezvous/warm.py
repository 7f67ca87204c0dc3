"""The agent's side of warm workers: the process that they are forked from, started and ready.

What that process does at its start is in ``preload``.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os

from bftrainer_slurm.elastic.rendezvous import fork_server, semaphores

_REHEARSAL_S = 60.0  # a cold disk takes a while; without a rehearsal the first step takes longer


def start() -> None:
    """Start multiprocessing's fork server, which begins to import what training needs.

    Returns at once. To be called in the main thread, as the server ends with the thread that
    started it, and before there are others.
    """
    semaphores.claim()
    multiprocessing.set_forkserver_preload(["bftrainer_slurm.elastic.rendezvous.preload"])
    fork_server.ensure_running()


def wait() -> None:
    """Return when a forked worker would come to its first step at once."""
    rehearsal = multiprocessing.get_context("forkserver").Process(target=_rehearse)
    rehearsal.start()
    rehearsal.join(_REHEARSAL_S)
    if rehearsal.is_alive():
        rehearsal.kill()
        rehearsal.join()


def _rehearse() -> None:
    """Make one tiny step on the CPU, so that what it needs of torch's libraries is in memory.

    The nodes that train already stand still while a newcomer makes its first step.
    """
    import torch
    from torch import distributed, nn

    os.environ.pop("BFTRAINER_ELEMENT", None)  # these steps do not count
    with contextlib.suppress(Exception), open(os.devnull, "w") as nowhere:  # noqa: PTH123
        for stream in (1, 2):  # gloo of torch 2.9 writes there, past Python
            os.dup2(nowhere.fileno(), stream)
        store = distributed.HashStore()  # type: ignore[attr-defined]
        distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        parallel = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
        optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
        for _ in range(2):  # DDP arranges its buckets anew after the first
            parallel(torch.ones(4, 8)).sum().backward()
            optimizer.step()
