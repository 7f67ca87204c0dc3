"""The demo's private cluster, its controller and its users: started, used and ended."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.home import read_token
from scripts.labcluster.cluster import free_ports
from scripts.labcluster.configuration import exported
from scripts.labcluster.processes import Daemon, end, start_of
from scripts.labcluster.stage import Stage, staged

_STOP_TIMEOUT_S = 20.0
# Holes last seconds in the demo, not minutes: look more often, and less far ahead.
_QUICK = {"forward_time_s": 30, "queue_interval_s": 5}


@dataclass(frozen=True)
class Cluster:
    """A running private cluster. ``user`` and ``slurm_user`` are None where one user is all."""

    folder: Path
    environment: dict[str, str]
    stage: Stage
    keeper: str
    user: str | None
    slurm_user: str | None

    def run(self, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command as the user whose jobs these are; raise where it fails."""
        variables = self.environment | options.pop("env", {})
        path = f"{self.stage.bin}:{variables['PATH']}"
        settings: dict[str, Any] = {"cwd": "/", "env": variables | {"PATH": path}}
        settings |= self._as(self.user) | options
        return subprocess.run(command, text=True, check=True, capture_output=True, **settings)

    def busy_nodes(self) -> tuple[set[str], int]:
        """Return the nodes on which something runs, and how many ordinary jobs wait."""
        nodes = self.run("sinfo", "-N", "-h", "-p", "main", "-o", "%N %t").stdout.split()
        free = ("idle", "plnd")  # planned: idle, and Slurm saves it for a waiting job
        busy = {
            name for name, state in zip(nodes[::2], nodes[1::2], strict=True) if state not in free
        }
        waiting = self.run("squeue", "-h", "-p", "main", "-t", "PD").stdout.splitlines()
        return busy, len(waiting)

    def status(self) -> dict[str, Any]:
        """Return what the controller last said."""
        try:
            return KeeperClient(self.keeper, read_token(self.state)).status()[1] or {}
        except KeeperError:
            return {}

    @property
    def state(self) -> Path:
        """The controller's state folder."""
        return self.folder / "bftrainer"

    @contextmanager
    def controller(self, toml: Mapping[str, object] = _QUICK) -> Iterator[None]:
        """Run the controller, and end it and its keeper."""
        self.state.mkdir(exist_ok=True)
        if self.slurm_user is not None:
            subprocess.run(["chown", self.slurm_user, self.state], check=True)
        with (self.folder / "controller.log").open("wb") as log:
            command = [str(self.stage.bin / "bftrainer"), "controller", "--mode", "site"]
            command += ["--state", str(self.state), "--config", str(self._settings(toml))]
            settings: dict[str, Any] = {"env": self.environment, "cwd": "/"}
            settings |= self._as(self.slurm_user)
            process = subprocess.Popen(command, stdout=log, stderr=log, **settings)
            try:
                yield
            finally:
                process.terminate()
                process.wait(_STOP_TIMEOUT_S)
                self._end_keeper()

    def _settings(self, toml: Mapping[str, object]) -> Path:
        path = self.folder / "bftrainer.toml"
        where = {"listen": self.keeper, "munge_socket": f"{self.folder}/munge/socket"}
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in {**where, **toml}.items()]
        path.write_text("".join(lines))
        return path

    def _end_keeper(self) -> None:
        """End it and wait for that: the next controller's keeper has the same address."""
        try:
            pid = json.loads((self.state / "keeper.json").read_text())["pid"]
        except OSError:
            return
        start = start_of(pid)
        if start is not None:
            end([Daemon(pid, start)])

    @staticmethod
    def _as(user: str | None) -> dict[str, Any]:
        return {} if user is None else {"user": user, "group": user, "extra_groups": []}


@contextmanager
def started_cluster(
    repo: Path, folder: Path, nodes: int, conf: Sequence[str] = ()
) -> Iterator[Cluster]:
    """Start a private cluster with the plugin in it; end it whatever happens.

    ``conf`` has further lines of slurm.conf.
    """
    lab = (str(repo / "scripts" / "lab"), "--dir", str(folder))
    keeper = f"127.0.0.1:{free_ports(1)[0]}"
    try:
        options = [word for line in conf for word in ("--conf", line)]
        _lab(lab, "up", "--nodes", str(nodes), "--bf-interval", "2", "--keeper", keeper, *options)
        root = os.getuid() == 0
        user = "alice" if root else None
        stage = staged(repo, folder / "stage", user)
        environment = os.environ | exported(_lab(lab, "env"))
        yield Cluster(folder, environment, stage, keeper, user, "slurm" if root else None)
    finally:
        _lab(lab, "down")


def _lab(lab: tuple[str, ...], command: str, *arguments: str) -> str:
    script, *where = lab
    # Not reached by the Ctrl-C that ends the demo: the cluster must still be taken down.
    return subprocess.run(
        [script, command, *where, *arguments],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ).stdout
