"""Other processes on this node: those that load data or help, and how to end a whole job.

None of them must outlive the process that trains with it. Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Collection, Iterable, Iterator
from multiprocessing.sharedctypes import RawValue
from multiprocessing.util import Finalize
from pathlib import Path

_ROUND_S, _ROUNDS = 0.02, 250
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # prctl.h


def processes_with(*variables: str) -> Iterator[int]:
    """Yield this user's processes that have been started with all of these NAME=VALUE."""
    wanted = {text.encode() for text in variables}
    for folder in _folders():
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            if wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                yield int(folder.name)


def _folders() -> Iterator[Path]:
    return (folder for folder in Path("/proc").iterdir() if folder.name.isdecimal())


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent process is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of each process below this one whose own parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def below(ancestor: int, spare: Collection[int] = ()) -> list[int]:
    """Return the processes below this one: its children, their children, and so on.

    ``spare`` are left out, and what is below them.
    """
    parents = {}
    for folder in _folders():
        with contextlib.suppress(OSError):  # ended in between
            stat = (folder / "stat").read_text()
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    for process in spare:
        parents.pop(process, None)
    found = {ancestor}
    while more := {process for process, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {ancestor})


def end_within(seconds: float, processes: Collection[int]) -> None:
    """Send SIGTERM to processes, and SIGKILL to those still there after ``seconds``.

    It returns when they have ended: what they have left behind is gone then, too. One that hangs
    in the kernel, as on a file server that is away, is left after as long again.
    """
    with _handles(processes) as handles:
        _signal(handles, signal.SIGTERM)
        left = _still_there(handles, time.monotonic() + seconds)
        _signal(left, signal.SIGKILL)
        _still_there(left, time.monotonic() + seconds)


def wait_for_end(processes: Iterable[int], seconds: float) -> None:
    """Wait until these processes have ended, for so long at most."""
    with _handles(processes) as handles:
        _still_there(handles, time.monotonic() + seconds)


def _still_there(handles: Collection[int], until_s: float) -> set[int]:
    """Wait until processes have ended, or it is so late; return those that have not."""
    left, poller = set(handles), select.poll()
    for handle in handles:
        poller.register(handle, select.POLLIN)  # a process's handle can be read when it has ended
    while left and (wait_s := until_s - time.monotonic()) > 0:
        for handle, _ in poller.poll(1000 * wait_s):
            poller.unregister(handle)
            left.discard(handle)
    return left


@contextlib.contextmanager
def _handles(processes: Iterable[int]) -> Iterator[list[int]]:
    """Open processes: later a number may belong to another one."""
    handles: list[int] = []
    try:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                handles.append(os.pidfd_open(process))
        yield handles
    finally:
        for handle in handles:
            os.close(handle)


def _signal(handles: Iterable[int], number: int) -> None:
    for handle in handles:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(handle, number)


def kill_job(job_id: str, spare: Collection[int]) -> bool:
    """Send SIGKILL to the job's processes until none is left; return whether none is."""
    for _ in range(_ROUNDS):
        found = processes_with(f"SLURM_JOB_ID={job_id}")  # of other users none can be read
        if not (left := set(found) - set(spare)):
            return True
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(_ROUND_S)
    return False


class DataWorkerStart:
    """What a DataLoader's worker process does first, if its trainer saves when told.

    Slurm's SIGTERM reaches the worker too; it ignores it, as its trainer still trains to the
    boundary. But it obeys multiprocessing's SIGTERM when the trainer's process exits. A worker
    that outlives a killed trainer would keep connections open, so that peers do not see the loss.
    """

    def __init__(self) -> None:
        self._exiting = RawValue(ctypes.c_bool, False)
        # multiprocessing calls this one before it ends its children.
        Finalize(self, setattr, (self._exiting, "value", True), exitpriority=100)

    def __call__(self) -> None:
        """Begin, in the worker."""
        signal.signal(signal.SIGTERM, self._end_if_exiting)
        end_with_parent()

    def _end_if_exiting(self, *_: object) -> None:
        if self._exiting.value:
            os._exit(0)
