"""The Unix users of private clusters on this machine; without root there is only one.

They are made when first needed, and removed with the last cluster that uses them.
"""

from __future__ import annotations

import fcntl
import getpass
import hashlib
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAMES = ("alice", "bob", "carol")
_REGISTER = Path("/run/bftrainer-lab")


def as_user(user: str) -> list[str]:
    """Return what comes before a command to run it as this user; nothing if we cannot or need not.

    For its own options ``user`` and ``group`` subprocess copies this process, which takes 10 ms of
    a processor once torch has been imported.
    """
    if os.getuid() != 0 or user == "root":
        return []
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]


def give(path: Path, user: str) -> None:
    """Let a file or folder belong to this user, if we can."""
    if os.getuid() == 0:
        shutil.chown(path, user, user)


def account_of(user: str) -> str:
    """Return the name of the account behind this user; without root it is always our own."""
    return user if os.getuid() == 0 else getpass.getuser()


def acquire(folder: Path) -> None:
    """Make the users that are missing, and note that the cluster in ``folder`` uses them."""
    with _register() as register:
        _mark(register, folder).write_text(str(folder))
        known = {one.pw_name for one in pwd.getpwall()}
        for name in set(NAMES) - known:
            command = ("useradd", "--no-create-home", "--user-group", "--shell", "/bin/bash", name)
            subprocess.run(command, check=True, capture_output=True, text=True)
            (register / f"made-{name}").touch()


def release(folder: Path) -> None:
    """Note that the cluster is gone; after the last one, remove the users that we made."""
    with _register() as register:
        _mark(register, folder).unlink(missing_ok=True)
        if any(Path(mark.read_text()).is_dir() for mark in register.glob("used-*")):
            return
        for made in register.glob("made-*"):
            subprocess.run(["userdel", made.name.removeprefix("made-")], capture_output=True)
        shutil.rmtree(register)


def _mark(register: Path, folder: Path) -> Path:
    return register / f"used-{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"


@contextmanager
def _register() -> Iterator[Path]:
    """Yield the register; a lock on the folder above it keeps others from changing it."""
    above = os.open(_REGISTER.parent, os.O_RDONLY)
    try:
        fcntl.flock(above, fcntl.LOCK_EX)
        _REGISTER.mkdir(exist_ok=True)
        yield _REGISTER
    finally:
        os.close(above)
