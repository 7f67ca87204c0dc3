"""What workers are forked from: it imports all that training imports, and forks them when asked.

It computes nothing and does not use CUDA, as neither threads nor CUDA survive a fork.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from bftrainer_slurm.elastic.processes import adopt_orphans, end_with_parent
from bftrainer_slurm.elastic.rendezvous import imports

# DDP imports torch._dynamo when it is made, and torchrun's workers import torchrun.
_MODULES = (
    "torch",
    "torch._dynamo",
    "torch.distributed.run",
    "torch.nn.parallel",
    "torch.optim.lr_scheduler",
    "torch.profiler._cupti_monitor",
    "torch.utils.data",
    "torch.utils.serialization.config",
)
_REHEARSAL_S = 60  # for a cold disk; if the rehearsal is cut off, the first step takes longer
# A fault of this process's own, and that a child has ended.
_KEPT = {
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP),
    *(signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD),
}
_Handlers = Mapping[signal.Signals, Any]


def serve(asking: int) -> NoReturn:
    """Fork workers as the agent asks by this socket, and tell it when they have ended."""
    end_with_parent()  # when the agent is killed, nothing else would end this one and its workers
    adopt_orphans()  # what a script leaves behind: so the agent finds it below this process
    # Slurm signals all processes of an element, and this one's end would be that of its workers.
    numbers = [one for one in signal.valid_signals() - _KEPT if signal.getsignal(one) is not None]
    handlers = {one: signal.signal(one, signal.SIG_IGN) for one in numbers}
    _load()
    _rehearse_once()
    asked = socket.socket(fileno=asking)
    _tell(asked, "ready")
    workers: dict[int, int] = {}  # and what shows that they have ended
    unread = b""
    while True:
        ready, _, _ = select.select([asking, *workers.values()], [], [])
        for pid, code in _ended_children():
            if pid in workers:  # else it is an orphan
                os.close(workers.pop(pid))
                _tell(asked, "ended", pid, code)
        if asking not in ready:
            continue
        if not (read := asked.recv(1 << 16)):
            os._exit(0)
        *lines, unread = (unread + read).split(b"\n")
        for line in lines:
            pid = _fork(line, handlers, (asking, *workers.values()))
            workers[pid] = os.pidfd_open(pid)
            _tell(asked, "began", pid)


def _ended_children() -> Iterator[tuple[int, int]]:
    with contextlib.suppress(ChildProcessError):  # there is none
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            yield child[0], os.waitstatus_to_exitcode(child[1])


def _tell(asked: socket.socket, *news: object) -> None:
    asked.sendall(json.dumps(news).encode() + b"\n")


def _fork(line: bytes, handlers: _Handlers, own: Sequence[int]) -> int:
    """Fork a worker, which leads a group of processes as torchrun's do."""
    from bftrainer_slurm.elastic.rendezvous import script

    arguments, environment, outputs = json.loads(line)
    pid = os.fork()
    if not pid:
        for number in own:
            os.close(number)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        script.main(arguments, environment, outputs)
    with contextlib.suppress(OSError):  # it has ended, or has become another program
        os.setpgid(pid, pid)
    return pid


def _load() -> None:
    gc.disable()  # it would take a third of the time, and imports leave hardly any garbage
    try:
        for name in _MODULES:
            with contextlib.suppress(ImportError):  # other versions of torch may not have it
                importlib.import_module(name)
        for name in imports.of_script(sys.argv):
            with contextlib.suppress(Exception):  # the script will say what is wrong
                imports.load(name)
        # Modules that the user knows to be safe to fork: BFTRAINER_PRELOAD=torchvision,pandas
        for name in filter(None, os.environ.get("BFTRAINER_PRELOAD", "").split(",")):
            importlib.import_module(name)
    finally:
        gc.freeze()  # never searched again
        gc.enable()

    from bftrainer_slurm.elastic.rendezvous import script  # noqa: F401
    from bftrainer_slurm.elastic.steps import count
    from bftrainer_slurm.elastic.torch_private import keep_groups

    count()
    keep_groups()
    gc.freeze()  # else a worker's first garbage collection copies every page with objects


def _rehearse_once() -> None:
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    signal.alarm(_REHEARSAL_S)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    try:
        _rehearse()
    finally:
        os._exit(0)


def _rehearse() -> None:
    """Train two tiny steps on the CPU, so that the libraries they need are in memory.

    The nodes that train already must wait while a newcomer makes its first step.
    """
    import torch
    from torch import distributed, nn

    os.environ.pop("BFTRAINER_ELEMENT", None)  # these steps do not count
    with contextlib.suppress(Exception), open(os.devnull, "w") as nowhere:  # noqa: PTH123
        for stream in (1, 2):  # the gloo of torch 2.9 writes there directly
            os.dup2(nowhere.fileno(), stream)
        store = distributed.HashStore()  # type: ignore[attr-defined]
        distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        parallel = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
        optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
        for _ in range(2):  # DDP rebuilds its buckets after the first one
            parallel(torch.ones(4, 8)).sum().backward()
            optimizer.step()
