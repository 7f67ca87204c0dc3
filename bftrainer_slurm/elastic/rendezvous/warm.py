"""The process that warm workers are forked from: multiprocessing's fork server.

It is a fork of this process, which has imported torch already. multiprocessing alone would start a
new Python, which imports torch a second time (2 s of a core). ``preload`` is what it does at its
start.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver, resource_tracker, util
from pathlib import Path
from typing import Any

from bftrainer_slurm.elastic.processes import below, processes_with
from bftrainer_slurm.elastic.rendezvous.endings import claim_semaphores

_JOB = "SLURM_JOB_ID"
_START_NEW = util.spawnv_passfds
_LONGEST = 107 - len("/pymp-12345678/listener-12345678")  # Linux' limit, multiprocessing's names
_REHEARSAL_S = 60.0  # for a cold disk; if the rehearsal is cut off, the first step takes longer


def start() -> None:
    """Start multiprocessing's fork server, which begins to import what training needs.

    It returns at once. Call it in the main thread, as the server ends with the thread that started
    it, and before there are other threads.
    """
    claim_semaphores()
    multiprocessing.set_forkserver_preload(["bftrainer_slurm.elastic.rendezvous.preload"])
    ensure_running()


def ensure_running() -> None:
    """Start the fork server if it does not run; as a new Python if this one cannot be copied."""
    _shorten_socket_paths()
    resource_tracker.ensure_running()  # this is a new Python in any case
    if not _can_be_copied():
        forkserver.ensure_running()
        return
    util.spawnv_passfds = _copy  # type: ignore[assignment]
    try:
        forkserver.ensure_running()
    finally:
        util.spawnv_passfds = _START_NEW


def _shorten_socket_paths() -> None:
    """Where TMPDIR is too long for the path of a socket, let multiprocessing have another folder.

    Python does so itself from 3.14 on. It is for sockets only: what the script writes stays there.
    """
    given = tempfile.gettempdir()
    if len(os.fsencode(given)) <= _LONGEST:
        return
    for short in ("/tmp", "/var/tmp", "/dev/shm"):
        tempfile.tempdir = short
        with contextlib.suppress(OSError):
            util.get_temp_dir()  # makes one, which stays this process's and its workers'
            break
    tempfile.tempdir = given


def _can_be_copied() -> bool:
    """Whether a copy would lose nothing: it would lose other threads, and CUDA if it is loaded."""
    return threading.active_count() == 1 and "libcuda.so" not in Path("/proc/self/maps").read_text()


def _copy(path: str, arguments: Sequence[str], passed: Sequence[int]) -> int:
    """Run in a fork what ``python -c`` would run; return its process id (``spawnv_passfds``)."""
    sys.stdout.flush()  # else each worker would print it again
    sys.stderr.flush()
    origins = _descriptors()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        _forget_origin({0, 1, 2, *passed}, origins)
        code, sys.argv = program(arguments, sys.argv)
        exec(code, {})
        status = 0
    except SystemExit:
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def program(arguments: Sequence[str], argv: list[str]) -> tuple[str, list[str]]:
    """Return the code of a command line with ``-c``, and its ``sys.argv``.

    From Python 3.14 on, arguments follow the code; if there are none, ``argv`` is kept.
    """
    code, *own = arguments[arguments.index("-c") + 1 :]
    return code, ["-c", *own] if own else argv


def _descriptors() -> dict[int, str]:
    """Return what each file descriptor of this process is open on."""
    found = {}
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one of this listing
            found[int(path.name)] = str(path.readlink())
    return found


def _forget_origin(kept: set[int], origins: Mapping[int, str]) -> None:
    """In the copy, let go of all that belongs to the original process.

    Some libraries open anew what they need as they are forked: libuv, which TCPStore uses, has a
    pipe. They would close it by its number at the next fork, whosever that is by then.
    """
    util.spawnv_passfds = _START_NEW
    gc.freeze()  # garbage must not close its files later: the numbers may be others' by then
    for number, opened in _descriptors().items():
        if number not in kept and origins.get(number) == opened:
            os.close(number)
    # The original holds this lock while it starts us; workers need it free.
    server: Any = forkserver._forkserver
    server._lock = threading.Lock()
    tracker: Any = resource_tracker._resource_tracker
    tracker._fd = tracker._pid = None


def wait() -> None:
    """Wait until a forked worker would get to its first step at once."""
    rehearsal = multiprocessing.get_context("forkserver").Process(target=_rehearse)
    rehearsal.start()
    rehearsal.join(_REHEARSAL_S)
    if rehearsal.is_alive():
        rehearsal.kill()
        rehearsal.join()


def left_over(variable: str) -> list[int]:
    """Return what workers have left behind, if none of them is there any more.

    These are the processes below the fork server, and those with this NAME=VALUE of the workers in
    their environment, for workers that were not forked.
    """
    server: Any = forkserver._forkserver
    tracker: Any = resource_tracker._resource_tracker
    own = (os.getpid(), tracker._pid, server._forkserver_pid)
    # A job that a worker has submitted has inherited the variable, and may be on this node too.
    job = [f"{_JOB}={os.environ[_JOB]}"] if _JOB in os.environ else []
    found = processes_with(variable, *job, spare=own)
    return found if server._forkserver_pid is None else found + below(server._forkserver_pid)


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
