"""The site's controller as a service: started again when it ends, as systemd does it.

Its wall clock can be set apart from the host's, so that nobody else's clock is touched.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.home import read_token

_RESTART_S = 2.0  # systemd's RestartSec in scripts/systemd
_STOP_TIMEOUT_S = 20.0
_HERE = Path(__file__).resolve().parent


@dataclass
class Service:
    """The controller of ``state``; ``settings`` (user, environment) are Popen's."""

    command: Sequence[str]
    state: Path
    log: Path
    environment: Mapping[str, str]
    user: str
    keeper: str
    held: bool = False  # not to be started again for now
    restarts: int = 0
    codes: list[int] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = None
    _ended_s: float = 0.0

    def start(self) -> None:
        """Start it, if it does not run."""
        self.held = False
        if self._process is not None and self._process.poll() is None:
            return
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                env=dict(self.environment),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=self.user,
                group=self.user,
                extra_groups=[],
            )

    def tend(self) -> None:
        """Start it again a moment after it has ended, unless it is held."""
        if self._process is None or self._process.poll() is None:
            return
        if not self._ended_s:
            self._ended_s = time.monotonic()
            self.codes.append(self._process.returncode)
        if not self.held and time.monotonic() - self._ended_s >= _RESTART_S:
            self._ended_s = 0.0
            self.restarts += 1
            self.start()

    @property
    def pid(self) -> int | None:
        """Its process id, None while it does not run."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    def kill(self, hold: bool = False) -> None:
        """SIGKILL it; ``hold``: it is not started again until ``start``."""
        self.held = hold
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """End it as an admin does; it is not started again until ``start``."""
        self.held = True
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def children(self) -> list[int]:
        """Return the process ids of its children."""
        if self.pid is None:
            return []
        path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(word) for word in path.read_text().split()]

    @property
    def keeper_pid(self) -> int | None:
        """The keeper's process id, as it has left it in the state folder; None: it has ended."""
        try:
            pid = int(json.loads((self.state / "keeper.json").read_text())["pid"])
            ours = b"bftrainer_slurm.keeper" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError, KeyError):
            return None
        return pid if ours else None

    def kill_keeper(self) -> None:
        """SIGKILL the keeper."""
        if self.keeper_pid is not None:
            os.kill(self.keeper_pid, signal.SIGKILL)

    def status(self) -> dict[str, Any]:
        """Return what it published last; ``age_s`` is how long ago. Nothing: no keeper answers."""
        try:
            age_s, status = KeeperClient(self.keeper, read_token(self.state)).status()
        except (KeeperError, OSError):
            return {}
        return {} if status is None else status | {"age_s": age_s}


class Clock:
    """Sets the wall clock of the processes that have ``environment``."""

    def __init__(self, folder: Path) -> None:
        self._offset = folder / "clock-offset"
        self._offset.write_text("0")
        library = folder / "clock.so"
        command = ("gcc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-O2")
        subprocess.run([*command, "-o", library, _HERE / "clock.c", "-ldl"], check=True)
        self.environment = {"LD_PRELOAD": str(library), "BFTRAINER_CHAOS_CLOCK": str(self._offset)}

    def step(self, seconds: int) -> None:
        """Put the clock ahead by so many seconds of the host's (less than 0: back)."""
        beside = self._offset.with_suffix(".new")
        beside.write_text(str(seconds))
        beside.replace(self._offset)
