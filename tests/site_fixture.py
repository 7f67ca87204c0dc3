"""A private cluster with the plugin and a controller on it, as an admin would set it up."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.home import read_token
from scripts.labcluster.stage import Stage, staged
from tests.lab_fixture import REPO, Lab, started_lab
from tests.waiting import wait_until

# Quicker than on a real cluster, so that tests need not wait for the slow look.
QUICK = (
    "queue_interval_s = 1\nnodes_interval_s = 2\nreservations_interval_s = 5\nmax_failures = 3\n"
)


@dataclass
class Controller:
    """A controller process of one account, with its state folder."""

    lab: Lab
    stage: Stage
    user: str
    state: Path
    arguments: Sequence[str]
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        identity = {"user": self.user, "group": self.user, "extra_groups": []}
        with (self.lab.dir / f"controller-{self.user}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(self.stage.bin / "bftrainer"), "controller", "--state", str(self.state)]
                + list(self.arguments),
                env=self.lab.env | {"HOME": str(self.lab.home(self.user)), "PATH": self._path},
                cwd="/",
                stdout=log,
                stderr=log,
                **(identity if os.getuid() == 0 else {}),  # type: ignore[call-overload]
            )
        wait_until(lambda: self.status().get("controller", {}).get("pid") == self.pid)

    @property
    def _path(self) -> str:
        return f"{self.lab.dir}/plugin:{self.lab.env['PATH']}"  # bftrainer-grow

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait(30)

    @property
    def keeper_note(self) -> dict[str, Any]:
        note: dict[str, Any] = json.loads((self.state / "keeper.json").read_text())
        return note

    def kill_keeper(self) -> None:
        os.kill(self.keeper_note["pid"], signal.SIGKILL)

    def status(self) -> dict[str, Any]:
        try:
            note = self.keeper_note["address"], read_token(self.state)
            return KeeperClient(*note).status()[1] or {}
        except (KeeperError, OSError):
            return {}

    def trainer(self, array: int) -> dict[str, Any]:
        """What is published of one trainer; nothing of it at first."""
        found = [one for one in self.status().get("trainers", []) if one["array"] == array]
        return found[0] if found else {"nodes": [], "samples": None, "state": "unknown"}

    @property
    def log(self) -> str:
        return (self.lab.dir / f"controller-{self.user}.log").read_text()


@dataclass
class Site:
    """The cluster, what users need of the project, and the site's controller."""

    lab: Lab
    stage: Stage
    controller: Controller
    _counter: Iterator[int] = field(default_factory=lambda: iter(range(1000)))

    def run(self, *command: str | Path, user: str = "alice", **options: Any) -> Any:
        """Run a command as a user who has the project's commands in PATH."""
        path = f"{self.stage.bin}:{self.lab.env['PATH']}"
        environment = {"PATH": path, "HOME": str(self.lab.home(user))} | options.pop("env", {})
        return self.lab.run(*command, user=user, env=environment, **options)

    def folder(self, user: str = "alice") -> Path:
        """Return a new folder of this user's."""
        folder = self.lab.home(user) / f"work-{next(self._counter)}"
        folder.mkdir()
        if os.getuid() == 0:
            shutil.chown(folder, user, user)
        return folder

    def submit(self, script: str, nodes: str, *options: str, user: str = "alice") -> int:
        """Submit a tagged script as its user would."""
        tagged = [] if any(one.startswith("--bftrainer") for one in options) else ["--bftrainer"]
        out = f"--output={self.folder(user)}/%a.out"
        submitted = self.run(
            *("sbatch", "--parsable", *tagged, f"-N{nodes}", out, *options),
            user=user,
            input=script,
        )
        return int(submitted.stdout)

    def digits(self, nodes: str, samples: int, *options: str) -> tuple[int, Path]:
        """Submit the example; return its array id and its folder."""
        folder = self.folder()
        train = self.stage.repo / "examples" / "digits" / "train.py"
        script = f"#!/bin/bash\nsrun torchrun {train} --folder {folder} --samples {samples}\n"
        return self.submit(script, nodes, *options), folder

    def end(self, *arrays: int) -> None:
        """Cancel trainers and wait until nothing of them is left."""
        self.lab.run("scancel", *map(str, arrays), user="root" if os.getuid() == 0 else "alice")
        over = {"CA", "CD", "F"}
        for array in arrays:
            wait_until(lambda array=array: set(self.lab.squeue(array, "%t")) <= over)  # type: ignore[misc]

    def states(self) -> list[str]:
        return self.lab.run("sinfo", "-h", "-N", "-p", "main", "-o", "%t").stdout.split()


@contextmanager
def started_site(nodes: int, settings: str = QUICK, **lab_options: Any) -> Iterator[Site]:
    """Set up cluster, plugin and controller; end all of it whatever happens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        keeper = f"127.0.0.1:{free.getsockname()[1]}"
    with ExitStack() as stack:
        lab = stack.enter_context(started_lab(nodes=nodes, keeper=keeper, **lab_options))
        where = f'listen = "{keeper}"\n'
        if lab_options.get("auth_slurm"):
            where += f'key_file = "{lab.dir}/bftrainer.key"\n'
        else:
            where += f'munge_socket = "{lab.dir}/munge/socket"\n'
        (lab.dir / "bftrainer.toml").write_text(where + settings)
        user = "slurm" if os.getuid() == 0 else "alice"
        stage = staged(REPO, lab.dir / "stage", user if os.getuid() == 0 else None)
        controller = made_controller(lab, stage, user, "--mode", "site")
        stack.callback(end_controller, controller)
        controller.start()
        yield Site(lab, stage, controller)


def described(site: Site) -> str:
    """Return what helps to find out why a test failed: queue, status, last lines of all logs."""
    listed = site.lab.run("squeue", "-a", "-r", check=False).stdout
    newest = sorted(site.lab.dir.glob("home/*/work-*/*.out"), key=lambda path: path.stat().st_mtime)
    logs = [*newest[-4:], *site.lab.dir.glob("controller-*.log")]
    ends = [f"== {path}\n{path.read_text(errors='replace')[-2000:]}" for path in logs]
    return "\n".join([listed, json.dumps(site.controller.status(), indent=1), *ends])


def made_controller(lab: Lab, stage: Stage, user: str, *arguments: str | Path) -> Controller:
    """Return a controller that is not started yet."""
    state = lab.dir / f"bftrainer-{user}"
    state.mkdir()
    if os.getuid() == 0:
        shutil.chown(state, user, user)
    return Controller(lab, stage, user, state, [str(word) for word in arguments])


def end_controller(controller: Controller) -> None:
    """End a controller and its keeper."""
    if controller.process is not None and controller.process.poll() is None:
        controller.stop()
    with contextlib.suppress(OSError):
        controller.kill_keeper()
