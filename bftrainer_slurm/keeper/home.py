"""Where a keeper leaves its address and its token, and how a controller finds or starts one.

The folder is the controller's state folder. The address may be read by everybody, the token only
by the account that the controller runs as.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError

_ADDRESS = "keeper.json"
_TOKEN = "keeper.token"
_START_TIMEOUT_S = 60.0  # torch's import, from a cold disk


def read_address(state: Path) -> str | None:
    """Return HOST:PORT of the keeper whose state folder this is, or None."""
    try:
        address = json.loads((state / _ADDRESS).read_text())["address"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(address)


def write_address(state: Path, address: str) -> None:
    """Leave the keeper's address and process id for others, at once or not at all."""
    beside = state / f"{_ADDRESS}.new"
    beside.write_text(json.dumps({"address": address, "pid": os.getpid()}))
    beside.chmod(0o644)
    beside.replace(state / _ADDRESS)


def own_token(state: Path) -> str:
    """Return the token that controller and keeper share, made at the first call."""
    path = state / _TOKEN
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    with os.fdopen(descriptor, "w") as file:
        token = os.urandom(16).hex()
        file.write(token)
    return token


def find_or_start(
    state: Path, listen: str, wait: Callable[[float], None] = time.sleep
) -> KeeperClient:
    """Return a client of the keeper of this state folder; start one if none answers.

    A keeper that answers is kept, whoever started it. A new one takes ``listen`` (port 0: the
    port of its predecessor, so that elements find it again, or any free one).

    Raises:
        KeeperError: it could not be started; its log says why.
    """
    token = own_token(state)
    before = read_address(state)
    if before is not None and _answers(KeeperClient(before, token)):
        return KeeperClient(before, token)
    if before is not None and listen.endswith(":0"):
        listen = before
    command = (sys.executable, "-P", "-m", "bftrainer_slurm.keeper")
    log_path = state / "keeper.log"
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            [*command, "--state", str(state), "--listen", listen],
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
