"""The demo's private cluster, its controller and its users: started, used and ended."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from scripts.labcluster.cluster import free_ports
from scripts.labcluster.configuration import exported
from scripts.labcluster.controller import Controller
from scripts.labcluster.stage import Stage, staged

# Holes last seconds in the demo, not minutes: look more often, and less far ahead.
QUICK = {"forward_time_s": 30, "queue_interval_s": 5}


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

    def administer(self, *command: str) -> None:
        """Run a command as SlurmUser."""
        self.run(*command, **self._as(self.slurm_user))

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
        return self._controller.status()

    @property
    def state(self) -> Path:
        """The controller's state folder."""
        return self._controller.state

    @contextmanager
    def controller(self, toml: Mapping[str, object] = QUICK) -> Iterator[None]:
        """Run the controller, and end it and its keeper."""
        controller = self._controller
        controller.set_up(toml)
        controller.log.unlink(missing_ok=True)
        controller.start()
        try:
            yield
        finally:
            controller.stop()
            controller.end_keeper()

    @cached_property
    def _controller(self) -> Controller:
        program = self.stage.bin / "bftrainer"
        return Controller(program, self.folder, self.keeper, self.environment, self.slurm_user)

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
