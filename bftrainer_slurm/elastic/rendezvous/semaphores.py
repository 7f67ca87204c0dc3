"""The named semaphores that an agent shares with its forked workers: those of killed ones go.

multiprocessing removes them as a process ends, which one that gets SIGKILL does not live to see;
a node that is harvested a thousand times a day would collect them in /dev/shm.
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
_OPENED_S = 60.0  # by then all who share one have opened it, and need its name no more


def claim(folder: Path = _FOLDER) -> None:
    """Let this process's semaphores bear its id, and remove those of processes that are gone.

    To be called before the first one is made. Those of other users stay: they are not ours to
    remove.
    """
    process.current_process()._config["semprefix"] = f"/bftrainer-{os.getpid()}"  # type: ignore[attr-defined]
    with contextlib.suppress(OSError):  # no such folder: no such files
        for path in folder.iterdir():
            match = _NAME.match(path.name)
            if match and not Path(f"/proc/{match[1]}").exists():
                _remove_old(path)


def remove_own(folder: Path = _FOLDER) -> None:
    """Remove those of this process, which is about to end without multiprocessing's own end."""
    for path in folder.glob(f"sem.bftrainer-{os.getpid()}-*"):
        # Else the tracker, which outlives this process, would miss them, and complain.
        resource_tracker.unregister(f"/{path.name.removeprefix('sem.')}", "semaphore")
        path.unlink(missing_ok=True)


def _remove_old(path: Path) -> None:
    # A process that cannot be seen may live in another container.
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > _OPENED_S:
            path.unlink()
