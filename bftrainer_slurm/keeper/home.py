"""The state folder: who may read its files, where the keeper is, and how a keeper is started.

The folder belongs to the controller. Only its owner may write to it and read its files, such as
the token and the members' secret. Everybody may read the keeper's address.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.credentials import Means
from bftrainer_slurm.own_python import own_python

logger = logging.getLogger(__name__)

READER_SOCKET = "reader.sock"
_ADDRESS = "keeper.json"
_LOG = "keeper.log"
_TOKEN = "keeper.token"
_SECRET = "member.secret"
# How the names begin of what keeper, controller and reader write into their folders.
_OURS = ("keeper.", "controller.", "reader.", "history.sqlite", "member.", "page.")
_OWN_TEXT = re.compile(r"[A-Za-z0-9_-]{32,}")
_START_TIMEOUT_S = 60.0  # a cold disk


class StateError(Exception):
    """The state folder cannot be trusted; the message says why."""


def private_folder(path: Path) -> None:
    """Make the folder if it is missing, and take others' rights from our files in it.

    From then on this process makes files that nobody else can read. Files that are not ours are
    left alone: somebody may name /etc.

    Raises:
        OSError: it cannot be made, or its files cannot be looked at.
        StateError: it is somebody else's, or others can write to it.
    """
    os.umask(0o077)
    path.mkdir(parents=True, exist_ok=True)
    make_private(path)


@contextlib.contextmanager
def only_one(what: str, folder: Path) -> Iterator[None]:
    """Work in a folder, made private, as the only process of this kind.

    Raises:
        OSError: as of ``private_folder``.
        StateError: the same, or another one works there.
    """
    private_folder(folder)
    with (folder / f"{what}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateError(f"another {what} works in {folder}") from None
        yield


def make_private(path: Path) -> None:
    """Take others' rights from our files in a folder.

    Raises:
        OSError: it is missing, or its files cannot be looked at.
        StateError: it is somebody else's, or others can write to it.
    """
    status = path.stat()
    if status.st_mode & stat.S_ISVTX:
        raise StateError(f"all users share {path}; choose another folder")
    if status.st_uid not in (os.getuid(), 0):
        raise StateError(f"{path} is somebody else's; choose another folder")
    if status.st_uid == os.getuid():
        path.chmod(stat.S_IMODE(status.st_mode) & ~0o022)
    elif status.st_mode & 0o002:
        raise StateError(f"anybody can write to {path}; choose another folder")
    for file in path.iterdir():
        if file.name.startswith(_OURS) and file.name != _ADDRESS:
            with contextlib.suppress(FileNotFoundError):  # another process has just renamed it
                _tighten(file)


def _tighten(file: Path) -> None:
    status = file.lstat()
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid():
        file.chmod(stat.S_IMODE(status.st_mode) & ~0o077)


def read_address(state: Path) -> str | None:
    """Return HOST:PORT of the keeper whose state folder this is, or None."""
    try:
        address = json.loads((state / _ADDRESS).read_text())["address"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(address)


def write_address(state: Path, address: str) -> None:
    """Write the keeper's address and process id for others, in one step or not at all.

    If that fails (a full disk) but the file has this address already, the old file stays.

    Raises:
        OSError: it cannot be written, so nobody would find the keeper.
    """
    beside = state / f"{_ADDRESS}.new"
    try:
        beside.write_text(json.dumps({"address": address, "pid": os.getpid()}))
        beside.chmod(0o644)
        beside.replace(state / _ADDRESS)
    except OSError as error:
        if read_address(state) != address:
            raise
        logger.warning("%s: %s", beside, error)


def own_token(state: Path) -> str:
    """Return the token that controller and keeper share, made at the first call.

    Raises:
        OSError, StateError: as ``own_text``.
    """
    return own_text(state / _TOKEN)


def read_token(state: Path) -> str:
    """Return the token in a state folder, or an empty text if there is none that we may read."""
    try:
        return _read_own(state / _TOKEN)
    except (OSError, StateError):
        return ""


def own_secret(state: Path) -> Path:
    """Return the file with the secret of one user's members (personal mode), made if missing.

    Raises:
        OSError, StateError: as ``own_text``.
    """
    own_text(state / _SECRET)
    return state / _SECRET


def own_text(path: Path) -> str:
    """Return the random text in a file of ours. A missing file is made, in one step.

    Raises:
        OSError: it cannot be read or made.
        StateError: something else is in it; another process may use it, so it is not made anew.
    """
    with contextlib.suppress(FileNotFoundError):
        return _read_own(path)
    beside = path.with_name(f"{path.name}.{os.urandom(8).hex()}")  # others may do the same
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(os.urandom(16).hex())
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # somebody else was faster
            os.link(beside, path)
    finally:
        beside.unlink()
    return _read_own(path)


def _read_own(path: Path) -> str:
    text = path.read_text(errors="replace").strip()
    if _OWN_TEXT.fullmatch(text) is None:
        raise StateError(f"{path} is damaged: remove it, and start keeper and controller again")
    return text


def find_or_start(
    state: Path,
    listen: str,
    *,
    means: Means = Means(),  # noqa: B008 - it is frozen
    start: bool = True,
) -> KeeperClient:
    """Return a client of the keeper of this state folder; ``start`` one if none answers.

    A keeper that answers is used, whoever started it. A new one listens at ``listen``; port 0
    means its predecessor's address, so that elements find it again, or else any free port.
    ``means`` is what a new one's proofs are made of. If it is not to be started, it is waited for.

    Raises:
        KeeperError: it could not be started; its log says why. Or nobody else has started it.
        OSError, StateError: there is no token.
    """
    token, deadline = own_token(state), time.monotonic() + _START_TIMEOUT_S
    if (found := _who_answers(state, token)) is not None:
        return found
    process = _started(state, listen, means) if start else None
    while time.monotonic() < deadline and (process is None or process.poll() is None):
        if (found := _who_answers(state, token)) is not None:
            return found
        time.sleep(0.1)
    if process is None:
        raise KeeperError(f"no keeper answers on this host, with {state} as its folder")
    raise KeeperError(f"the keeper did not start; see {state / _LOG}")


def _started(state: Path, listen: str, means: Means) -> subprocess.Popen[bytes]:
    if listen.endswith(":0"):
        listen = read_address(state) or listen
    command = [*own_python("-m", "bftrainer_slurm.keeper"), "--state", str(state)]
    command += ["--listen", listen]
    if means.munge_socket is not None:
        command += ["--munge-socket", means.munge_socket]
    if means.key_file is not None:
        command += ["--key-file", str(means.key_file)]
    with (state / _LOG).open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # it must outlive the controller
        )


def _who_answers(state: Path, token: str) -> KeeperClient | None:
    if address := read_address(state):
        client = KeeperClient(address, token)
        with contextlib.suppress(KeeperError):
            client.status()
            return client
    return None
