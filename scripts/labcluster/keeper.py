"""A real keeper in a process of its own, found by the files in its state folder."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.credentials import Means, read_secret, secret_of_job
from bftrainer_slurm.keeper.home import find_or_start, own_secret, read_address, read_token
from scripts.labcluster.processes import Daemon, daemon_of, end, send


@dataclass(frozen=True)
class Keeper:
    """The keeper with this state folder; it may not have been started yet, or may have ended."""

    state: Path

    @property
    def address(self) -> str:
        """HOST:PORT; empty if no keeper has ever written it."""
        return read_address(self.state) or ""

    @property
    def client(self) -> KeeperClient:
        """A client with a controller's rights."""
        return KeeperClient(self.address, read_token(self.state), timeout_s=30.0)

    @property
    def pid(self) -> int | None:
        """Its process id; None: it has ended."""
        return next((process.pid for process in self._processes()), None)

    def secret(self, array: int) -> bytes:
        """Return a trainer's secret in personal mode."""
        return secret_of_job(read_secret(own_secret(self.state)), array, os.getuid())

    def kill(self) -> None:
        """Send SIGKILL, and wait for its end."""
        processes = self._processes()
        for process in processes:
            send(process, signal.SIGKILL)
        end(processes)

    def end(self) -> None:
        """End it, and wait for that, as the next one may have the same address."""
        end(self._processes())

    def status(self) -> dict[str, Any]:
        """Return the last status that its controller published, with its ``age_s``.

        It is empty if no keeper answers.
        """
        return published(self.client)

    def _processes(self) -> list[Daemon]:
        """Return its process, if it runs."""
        try:
            pid = int(json.loads((self.state / "keeper.json").read_text())["pid"])
            ours = b"bftrainer_slurm.keeper" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError, KeyError):
            return []
        process = daemon_of(pid) if ours else None
        return [] if process is None else [process]


def published(client: KeeperClient) -> dict[str, Any]:
    """Return the status that a keeper has, with its age; empty if the keeper does not answer."""
    try:
        age_s, status = client.status()
    except (KeeperError, OSError, ValueError):
        return {}
    return {} if status is None else status | {"age_s": age_s}


@contextmanager
def started_keeper(state: Path, means: Means | None = None) -> Iterator[Keeper]:
    """Start a keeper, for one user unless ``means`` says otherwise; end it whatever happens."""
    find_or_start(state, "127.0.0.1:0", means=means or Means())
    keeper = Keeper(state)
    try:
        yield keeper
    finally:
        keeper.kill()
