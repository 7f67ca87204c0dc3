"""multiprocessing's fork server as a copy of this process, which has imported torch already.

By itself multiprocessing starts a new Python, which imports torch a second time: 2 s of a core.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Sequence
from multiprocessing import forkserver, resource_tracker, util
from pathlib import Path
from typing import Any

_START_NEW = util.spawnv_passfds


def ensure_running() -> None:
    """Start the fork server, if it does not run; in a new Python where a copy would not do."""
    resource_tracker.ensure_running()  # which is a new Python in any case
    if not _can_be_copied():
        forkserver.ensure_running()
        return
    util.spawnv_passfds = _copy  # type: ignore[assignment]
    try:
        forkserver.ensure_running()
    finally:
        util.spawnv_passfds = _START_NEW


def _can_be_copied() -> bool:
    """Whether nothing here is lost in a copy: other threads are, and CUDA where it has begun."""
    return threading.active_count() == 1 and "libcuda.so" not in Path("/proc/self/maps").read_text()


def _copy(path: str, arguments: Sequence[str], passed: Sequence[int]) -> int:
    """Run in a copy what ``python -c`` would run; return its process id (``spawnv_passfds``)."""
    sys.stdout.flush()  # else each worker would print it again
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        _forget_origin({0, 1, 2, *passed})
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

    From Python 3.14 on arguments follow the code; without any it keeps this process's.
    """
    code, *own = arguments[arguments.index("-c") + 1 :]
    return code, ["-c", *own] if own else argv


def _forget_origin(kept: set[int]) -> None:
    """Leave to the original what is the original's."""
    util.spawnv_passfds = _START_NEW
    gc.collect()  # what is garbage closes its own files; later it might close other ones
    for name in [path.name for path in Path("/proc/self/fd").iterdir()]:
        with contextlib.suppress(OSError):  # the listing's own
            if int(name) not in kept:
                os.close(int(name))
    # Locked, as the original is about to start us; workers use theirs.
    server: Any = forkserver._forkserver
    server._lock = threading.Lock()
    tracker: Any = resource_tracker._resource_tracker
    tracker._fd = tracker._pid = None
