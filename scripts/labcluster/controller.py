"""The controller of a private cluster, with its settings and its keeper, as an admin runs them.

What restarts it is not here.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.home import read_token
from scripts.labcluster.processes import Daemon, end, send, start_of

_STOP_TIMEOUT_S = 20.0


@dataclass
class Controller:
    """The controller of the cluster in ``folder``; its keeper listens at ``keeper`` (HOST:PORT).

    ``program`` is bftrainer; ``user`` None: whoever runs this.
    """

    program: Path
    folder: Path
    keeper: str
    environment: Mapping[str, str]
    user: str | None
    _process: subprocess.Popen[bytes] | None = None

    @property
    def state(self) -> Path:
        """Its state folder."""
        return self.folder / "bftrainer"

    @property
    def log(self) -> Path:
        """What it says."""
        return self.folder / "controller.log"

    @property
    def command(self) -> tuple[str, ...]:
        """How it is started; the last word is the state folder."""
        return (str(self.program), "controller", "--mode", "site", "--state", str(self.state))

    @property
    def pid(self) -> int | None:
        """Its process id, None while it does not run."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    def set_up(self, settings: Mapping[str, object]) -> None:
        """Make its state folder, if it is missing, and write its settings."""
        where = {"listen": self.keeper, "munge_socket": f"{self.folder}/munge/socket"}
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in {**where, **settings}.items()]
        (self.folder / "bftrainer.toml").write_text("".join(lines))
        self.state.mkdir(exist_ok=True)
        if self.user is not None:
            shutil.chown(self.state, self.user, self.user)

    def start(self) -> None:
        """Start it, if it does not run."""
        if self.pid is not None:
            return
        identity: dict[str, Any] = {}
        if self.user is not None:
            identity = {"user": self.user, "group": self.user, "extra_groups": []}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                env=dict(self.environment),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **identity,
            )

    def stop(self) -> None:
        """End it as an admin does."""
        if self._process is None or self.pid is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """SIGKILL it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

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
        keeper = self._keeper_process()
        if keeper is not None:
            send(keeper, signal.SIGKILL)

    def end_keeper(self) -> None:
        """End the keeper, and wait for that: the next one may have the same address."""
        keeper = self._keeper_process()
        if keeper is not None:
            end([keeper])

    def status(self) -> dict[str, Any]:
        """Return what it published last; ``age_s`` is how long ago. Nothing: no keeper answers."""
        with contextlib.suppress(KeeperError, OSError):
            age_s, status = KeeperClient(self.keeper, read_token(self.state)).status()
            if status is not None:
                return status | {"age_s": age_s}
        return {}

    def _keeper_process(self) -> Daemon | None:
        pid = self.keeper_pid
        start = None if pid is None else start_of(pid)
        return None if pid is None or start is None else Daemon(pid, start)
