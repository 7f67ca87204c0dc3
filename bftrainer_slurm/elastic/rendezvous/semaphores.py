"""Removes the named semaphores of killed agents, which agents share with their forked workers.

multiprocessing removes a process's semaphores at its end, but not after SIGKILL. On a node that is
harvested a thousand times a day they would fill /dev/shm.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from multiprocessing import process, resource_tracker
from pathlib import Path

_FOLDER = Path("/dev/shm")
_NAME = re.compile(r"sem\.bftrainer-(\d+)-")
_OPENED_S = 60.0  # by then all processes that share one have opened it, and need no name


def claim(folder: Path = _FOLDER) -> None:
    """Name this process's semaphores after its id, and remove those of processes that are gone.

    Call it before the first semaphore is made. Those of other users stay: we may not remove them.
    """
    process.current_process()._config["semprefix"] = f"/bftrainer-{os.getpid()}"  # type: ignore[attr-defined]
    with contextlib.suppress(OSError):  # no such folder: no such files
        for path in folder.iterdir():
            match = _NAME.match(path.name)
            if match and not Path(f"/proc/{match[1]}").exists():
                _remove_old(path)


def remove_own(folder: Path = _FOLDER) -> None:
    """Remove this process's semaphores, as it is about to end without multiprocessing's exit."""
    for path in folder.glob(f"sem.bftrainer-{os.getpid()}-*"):
        # Else the tracker, which outlives this process, would complain that they are gone.
        resource_tracker.unregister(f"/{path.name.removeprefix('sem.')}", "semaphore")
        path.unlink(missing_ok=True)


def _remove_old(path: Path) -> None:
    # A process that cannot be seen may live in another container.
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > _OPENED_S:
            path.unlink()
