"""Where a keeper leaves its address and its token, and how a controller finds or starts one.

The folder is the controller's state folder. The address may be read by everybody, the token and
the members' secret only by the account that the controller runs as.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.credentials import Means

logger = logging.getLogger(__name__)

_ADDRESS = "keeper.json"
_TOKEN = "keeper.token"
_SECRET = "member.secret"
_START_TIMEOUT_S = 60.0  # torch's import, from a cold disk


def read_address(state: Path) -> str | None:
    """Return HOST:PORT of the keeper whose state folder this is, or None."""
    try:
        address = json.loads((state / _ADDRESS).read_text())["address"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(address)


def write_address(state: Path, address: str) -> None:
    """Leave the keeper's address and process id for others, at once or not at all.

    Where the disk is full and the keeper before had the same address, that one's word stands.

    Raises:
        OSError: it cannot be written, and nobody would find the keeper.
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
    """Return the token that controller and keeper share, made at the first call."""
    return _own(state / _TOKEN)


def read_token(state: Path) -> str:
    """Return the token in a state folder, empty where there is none that we may read."""
    try:
        return (state / _TOKEN).read_text().strip()
    except OSError:
        return ""


def own_secret(state: Path) -> Path:
    """Return the file with the secret of one user's members (personal mode), made if missing."""
    _own(state / _SECRET)
    return state / _SECRET


def _own(path: Path) -> str:
    """Return the random text in a file of ours; the file is there as a whole or not at all."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(os.urandom(16).hex())
    with contextlib.suppress(FileExistsError):  # somebody else was faster
        os.link(beside, path)
    beside.unlink()
    return path.read_text().strip()


def find_or_start(
    state: Path,
    listen: str,
    *,
    means: Means = Means(),  # noqa: B008 - it is frozen
    wait: Callable[[float], None] = time.sleep,
) -> KeeperClient:
    """Return a client of the keeper of this state folder; start one if none answers.

    A keeper that answers is kept, whoever started it. A new one takes ``listen`` (port 0: the
    port of its predecessor, so that elements find it again, or any free one). ``means`` is
    how members prove whose they are to a new one.

    Raises:
        KeeperError: it could not be started; its log says why.
    """
    token = own_token(state)
    before = read_address(state)
    if before is not None and _answers(KeeperClient(before, token)):
        return KeeperClient(before, token)
    if before is not None and listen.endswith(":0"):
        listen = before
    command = [sys.executable, "-P", "-m", "bftrainer_slurm.keeper"]
    command += ["--state", str(state), "--listen", listen, "--method", means.method]
    if means.munge_socket is not None:
        command += ["--munge-socket", means.munge_socket]
    if means.key_file is not None:
        command += ["--key-file", str(means.key_file)]
    log_path = state / "keeper.log"
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # it must outlive the controller
        )
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        address = read_address(state)
        if address is not None and _answers(KeeperClient(address, token)):
            return KeeperClient(address, token)
        wait(0.1)
    raise KeeperError(f"the keeper did not start; see {log_path}")


def _answers(client: KeeperClient) -> bool:
    try:
        client.status()
    except KeeperError:
        return False
    return True
