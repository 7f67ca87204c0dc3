"""The Unix users of private clusters on this machine; without root there is but one.

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
from typing import Any

NAMES = ("alice", "bob", "carol")
_REGISTER = Path("/run/bftrainer-lab")


def identity(user: str) -> dict[str, Any]:
    """Return what subprocess is told to run something as this user; nothing: as it is."""
    if os.getuid() != 0 or user == "root":
        return {}
    return {"user": user, "group": user, "extra_groups": []}


def account_of(user: str) -> str:
    """Return the name of the account that this user really is here."""
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
    """Note that the cluster is gone; remove the users that we made and nobody uses any more."""
    with _register() as register:
        _mark(register, folder).unlink(missing_ok=True)
        if any(Path(mark.read_text()).is_dir() for mark in register.glob("used-*")):
            return
        for made in register.glob("made-*"):
            subprocess.run(["userdel", made.name.removeprefix("made-")], capture_output=True)
        shutil.rmtree(register)


def home_of(folder: Path, name: str) -> Path:
    """Return a user's home in this cluster, made now if it is missing."""
    home = folder / "home" / name
    home.mkdir(parents=True, exist_ok=True)
    shutil.chown(home, name, name)
    return home


def _mark(register: Path, folder: Path) -> Path:
    return register / f"used-{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"


@contextmanager
def _register() -> Iterator[Path]:
    """Yield the register, which nobody else changes meanwhile: the folder above it is locked."""
    above = os.open(_REGISTER.parent, os.O_RDONLY)
    try:
        fcntl.flock(above, fcntl.LOCK_EX)
        _REGISTER.mkdir(exist_ok=True)
        yield _REGISTER
    finally:
        os.close(above)
