"""The state folder: its owner alone writes to it, and alone reads what is in it.

But for the keeper's address, which is everybody's to know where the folder may be entered.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

EVERYBODYS = "keeper.json"


class StateError(Exception):
    """The state folder cannot be trusted; the message says why."""


def private_folder(path: Path) -> None:
    """Make the folder where it is missing, and see to the modes of what is in it.

    From now on this process makes files that nobody else can read.

    Raises:
        OSError: it cannot be made, or looked at.
        StateError: others can write to it.
    """
    os.umask(0o077)
    path.mkdir(parents=True, exist_ok=True)
    status = path.stat()
    if status.st_uid not in (os.getuid(), 0):
        raise StateError(f"{path} is somebody else's; choose another folder")
    if status.st_uid == os.getuid():
        path.chmod(stat.S_IMODE(status.st_mode) & ~0o022)
    elif status.st_mode & 0o002:
        raise StateError(f"anybody can write to {path}; choose another folder")
    for file in path.iterdir():
        if file.name != EVERYBODYS:
            _tighten(file)


def _tighten(file: Path) -> None:
    status = file.lstat()
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid():
        file.chmod(stat.S_IMODE(status.st_mode) & ~0o077)
