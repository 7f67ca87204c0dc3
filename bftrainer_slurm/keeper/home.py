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
_START_TIMEOUT_S = 60.0  # a cold disk


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
    return own_text(state / _TOKEN)


def read_token(state: Path) -> str:
    """Return the token in a state folder, empty where there is none that we may read."""
    try:
        return (state / _TOKEN).read_text().strip()
    except OSError:
        return ""


def own_secret(state: Path) -> Path:
    """Return the file with the secret of one user's members (personal mode), made if missing."""
    own_text(state / _SECRET)
    return state / _SECRET


def own_text(path: Path) -> str:
    """Return the random text in a file of ours, made if missing; a whole file or none at all."""
    beside = path.with_name(f"{path.name}.{os.urandom(8).hex()}")  # of several hosts
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
    shared: Path | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> KeeperClient:
    """Return a client of the keeper of this state folder; start one if none answers.

    A keeper that answers is kept, whoever started it. A new one takes ``listen`` (port 0: the
    port of its predecessor, so that elements find it again, or any free one). ``means`` is
    how members prove whose they are to a new one. With a ``shared`` folder the keeper may be at
    any of the addresses in ``listen``, and a new one waits for this host's turn.

    Raises:
        KeeperError: it could not be started; its log says why.
    """
    token = own_token(shared or state)
    places = _places(state, listen, shared)
    if (found := _who_answers(places(), token)) is not None:
        return found
    if shared is None and listen.endswith(":0"):
        listen = read_address(state) or listen
    command = [sys.executable, "-P", "-m", "bftrainer_slurm.keeper"]
    command += ["--state", str(state), "--listen", listen, "--method", means.method]
    if means.munge_socket is not None:
        command += ["--munge-socket", means.munge_socket]
    if means.key_file is not None:
        command += ["--key-file", str(means.key_file)]
    if shared is not None:
        command += ["--shared", str(shared)]
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
    # The one that waits on this host, or works on another, may have been started by others.
    while time.monotonic() < deadline and (process.poll() is None or shared is not None):
        if (found := _who_answers(places(), token)) is not None:
            return found
        wait(0.1)
    raise KeeperError(f"the keeper did not start; see {log_path}")


def _places(state: Path, listen: str, shared: Path | None) -> Callable[[], list[str]]:
    """Return what says where the keeper may be now."""
    if shared is not None:
        return lambda: listen.split(",")
    return lambda: [address] if (address := read_address(state)) is not None else []


def _who_answers(addresses: list[str], token: str) -> KeeperClient | None:
    for address in addresses:
        client = KeeperClient(address, token)
        with contextlib.suppress(KeeperError):
            client.status()
            return client
    return None
