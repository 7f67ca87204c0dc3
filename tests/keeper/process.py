"""A real keeper in a process of its own, for tests that need one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bftrainer_slurm.keeper.client import KeeperClient
from bftrainer_slurm.keeper.home import find_or_start


@dataclass(frozen=True)
class KeeperProcess:
    state: Path
    client: KeeperClient

    @property
    def pid(self) -> int:
        return int(json.loads((self.state / "keeper.json").read_text())["pid"])

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@contextmanager
def started_keeper(state: Path) -> Iterator[KeeperProcess]:
    running = KeeperProcess(state, find_or_start(state, "127.0.0.1:0"))
    try:
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):  # ended by the test
            running.kill()
