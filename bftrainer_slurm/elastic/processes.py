"""Other processes on this node, as /proc shows them, and ending a whole job's. Linux only."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

_ROUND_S = 0.02


def job_processes(job_id: str, spare: Collection[int] = ()) -> list[int]:
    """Return the processes of this user whose environment has this SLURM_JOB_ID.

    ``spare`` are left out. Processes of other users cannot be read and are left out too.
    """
    marker = f"SLURM_JOB_ID={job_id}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal() or int(folder.name) in spare:
            continue
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # ended in between, or somebody else's
            continue
        if marker in variables:
            found.append(int(folder.name))
    return found


def group_catches(number: int) -> bool:
    """Return whether another process of this one's group has a handler of its own for a signal.

    That is so for none of those that the signal ends, or that ignore it.
    """
    group, me = os.getpgrp(), os.getpid()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal() or int(folder.name) == me:
            continue
        try:
            if os.getpgid(int(folder.name)) == group and _catches(folder, number):
                return True
        except (OSError, ValueError):  # ended in between
            continue
    return False


def _catches(process: Path, number: int) -> bool:
    for line in (process / "status").read_text().splitlines():
        name, _, mask = line.partition(":")
        if name == "SigCgt":
            return bool(int(mask, 16) >> (number - 1) & 1)
    return False


@contextlib.contextmanager
def killed_after(seconds: float, processes: Iterable[int]) -> Iterator[None]:
    """Send SIGKILL to those of the processes that are still there after so long in this context."""
    with contextlib.ExitStack() as stack:
        handles = []  # a number may be another process's by then
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                handles.append(os.pidfd_open(process))
                stack.callback(os.close, handles[-1])

        def kill() -> None:
            for handle in handles:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)

        timer = threading.Timer(seconds, kill)
        timer.daemon = True
        timer.start()
        stack.callback(timer.join)  # before the handles are closed
        stack.callback(timer.cancel)
        yield


def kill_job(
    job_id: str,
    spare: Collection[int],
    within_s: float = 5.0,
    wait: Callable[[float], None] = time.sleep,
) -> bool:
    """Send SIGKILL to the job's processes until none is left; return whether that was reached."""
    for _ in range(int(within_s / _ROUND_S)):
        left = job_processes(job_id, spare)
        if not left:
            return True
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        wait(_ROUND_S)
    return False
