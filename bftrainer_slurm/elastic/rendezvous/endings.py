"""How an agent and its forked workers end, where multiprocessing's own way will not do.

A worker ends as any Python does, which multiprocessing's processes skip: files that the script has
left open are written, and destructors and exit handlers run, those of libraries in C too.

An agent that was told to end does so at once, as an ordinary job waits for this node: the teardown
of torch's modules takes half a second of processor time, more than an element's usual grace.

An agent's named semaphores, which it shares with its workers, are removed though it was killed. On
a node that is harvested a thousand times a day they would fill /dev/shm.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import io
import multiprocessing
import os
import re
import shutil
import sys
import time
from multiprocessing import forkserver, process, resource_tracker, util
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from bftrainer_slurm.elastic.signals import SIGNALLED

_SEMAPHORES = Path("/dev/shm")
_NAME = re.compile(r"sem\.bftrainer-(\d+)-")
_OPENED_S = 60.0  # by then all processes that share one have opened it, and need no name


def end_as_python_ends() -> None:
    """Let this process, a fork of multiprocessing's fork server, end as Python ends."""
    outputs = [(os.dup(number), number) for number in (1, 2)]

    def end(code: int) -> NoReturn:
        for output, number in outputs:  # torch takes its --redirects back before this
            os.dup2(output, number)
        if code == SIGNALLED:  # others wait for this end
            _write_open_files()
            os._exit(code)
        ctypes.pythonapi.Py_Exit(code)
        raise AssertionError

    server: Any = forkserver
    server.os = SimpleNamespace(**{**vars(os), "_exit": end})


def _write_open_files() -> None:
    opened = [one for one in gc.get_objects() if isinstance(one, io.IOBase)]
    for file in (*opened, sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed, or a class of the script's
            file.flush()


def end_soon(code: int) -> None:
    """Let this process end with ``code`` as soon as its own work is done."""

    def end() -> NoReturn:
        sys.stdout.flush()
        sys.stderr.flush()
        end_now(code)

    atexit.register(end)  # the last one registered runs first: torch's would take their time


def end_now(code: int) -> NoReturn:
    """End now, whatever the main thread is doing; any thread may call this.

    Send SIGTERM to multiprocessing's processes without a wait, and remove its files.
    """
    for child in multiprocessing.active_children():
        child.terminate()
    shutil.rmtree(util.get_temp_dir(), ignore_errors=True)
    for path in _SEMAPHORES.glob(f"sem.bftrainer-{os.getpid()}-*"):
        # Else the tracker, which outlives this process, would complain that they are gone.
        resource_tracker.unregister(f"/{path.name.removeprefix('sem.')}", "semaphore")
        path.unlink(missing_ok=True)
    os._exit(code)


def claim_semaphores(folder: Path = _SEMAPHORES) -> None:
    """Name this process's semaphores after its id, and remove those of processes that are gone.

    Call it before the first semaphore is made. Those of other users stay: we may not remove them.
    """
    process.current_process()._config["semprefix"] = f"/bftrainer-{os.getpid()}"  # type: ignore[attr-defined]
    with contextlib.suppress(OSError):  # no such folder: no such files
        for path in folder.iterdir():
            match = _NAME.match(path.name)
            if match and not Path(f"/proc/{match[1]}").exists():
                # A process that cannot be seen may live in another container.
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime > _OPENED_S:
                        path.unlink()
