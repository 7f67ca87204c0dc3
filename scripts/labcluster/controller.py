"""Starts, asks and ends a controller on a private cluster, with its keeper.

Nothing here restarts it, as systemd would.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.benchkit.logs import last_lines
from scripts.labcluster.cluster import LabError
from scripts.labcluster.keeper import Keeper
from scripts.labcluster.lab import Lab
from scripts.labcluster.processes import Daemon, end, launch, send
from scripts.labcluster.users import as_user, give
from scripts.labcluster.waiting import wait_until

_STOP_TIMEOUT_S = 120.0


@dataclass
class Controller:
    """A controller of one account; ``program`` is bftrainer, with these further ``arguments``."""

    lab: Lab
    program: Path
    user: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)  # in addition to its user's own
    _daemon: Daemon | None = None

    @property
    def state(self) -> Path:
        """Its state folder."""
        return self.lab.dir / f"bftrainer-{self.user}"

    @property
    def log(self) -> Path:
        """The file with its output."""
        return self.lab.dir / f"controller-{self.user}.log"

    @property
    def command(self) -> tuple[str, ...]:
        """The command that starts it; the last word is the state folder."""
        return (str(self.program), "controller", *self.arguments, "--state", str(self.state))

    @property
    def pid(self) -> int | None:
        """Its process id, None while it does not run."""
        return self._daemon.pid if self._daemon is not None and self._daemon.alive else None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start it; end it and its keeper whatever happens."""
        try:
            self.start()
            yield
        finally:
            try:
                self.stop()
            finally:
                self.keeper.end()

    def start(self) -> None:
        """Start it, and wait until it publishes its status.

        Raises:
            LabError: it ended at once; the message has its last lines.
            TimeoutError: it does not publish anything.
        """
        self.launch()
        wait_until(self._publishes, otherwise="the controller publishes nothing")

    def launch(self) -> None:
        """Start it, if it does not run; do not wait for anything."""
        if self.pid is not None:
            return
        self.state.mkdir(exist_ok=True)
        give(self.state, self.user)
        path = f"{self.lab.dir}/plugin:{self.lab.env['PATH']}"  # bftrainer-grow
        own = {"HOME": str(self.lab.home(self.user)), "PATH": path, **self.environment}
        self._daemon = launch([*as_user(self.user), *self.command], self.log, self.lab.env | own)

    def stop(self) -> None:
        """End it as an admin does.

        Raises:
            TimeoutError: it did not end by itself.
        """
        if self._daemon is not None and not end([self._daemon], _STOP_TIMEOUT_S):
            raise TimeoutError("the controller did not end by itself")

    def kill(self) -> None:
        """SIGKILL it."""
        if self._daemon is not None:
            send(self._daemon, signal.SIGKILL)
            end([self._daemon])

    @property
    def keeper(self) -> Keeper:
        """Its keeper, which outlives it."""
        return Keeper(self.state)

    def status(self) -> dict[str, Any]:
        """Return what it published last, as ``Keeper.status`` does."""
        return self.keeper.status()

    def trainer(self, array: int) -> dict[str, Any]:
        """Return what is published of one trainer; nothing of it at first."""
        known = [one for one in self.status().get("trainers", []) if one["array"] == array]
        return known[0] if known else {"nodes": [], "samples": None, "state": "unknown"}

    def _publishes(self) -> bool:
        if self.pid is None:
            logs = (self.log, *self.state.glob("keeper.log"))
            said = "\n".join(last_lines(log, 5) for log in logs)
            raise LabError(f"the controller ended at once:\n{said}")
        return bool(self.status().get("controller", {}).get("pid") == self.pid)
