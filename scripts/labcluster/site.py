"""A site: a private cluster with our plugin, its users, and our controller.

The demo, the benches, the chaos suite and the tests all start theirs here.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from scripts.labcluster.cluster import free_ports
from scripts.labcluster.controller import Controller
from scripts.labcluster.lab import ADMIN, Lab, started_lab
from scripts.labcluster.processes import end, launch
from scripts.labcluster.stage import Stage, staged
from scripts.labcluster.users import as_user, give
from scripts.labcluster.waiting import wait_until

_PAUSE_S = 0.2  # all nodes share this host's processors

# Faster than on a real cluster, so that tests do not wait for the controller's next look.
QUICK: Mapping[str, object] = {
    "queue_interval_s": 1,
    "max_failures": 3,
}
_OVER = {"CA", "CD", "F", "TO"}


@dataclass
class Site:
    """The cluster, what users need of the project, and the site's controller."""

    lab: Lab
    stage: Stage
    controller: Controller
    keeper: str = ""  # HOST:PORT where the controller's keeper has to listen
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @contextmanager
    def controlled(self, settings: Mapping[str, object] = QUICK) -> Iterator[None]:
        """Run the site's controller with these settings; at the end, end it and its keeper."""
        self.configure({"listen": self.keeper, "metrics": "127.0.0.1:0", **settings})
        with self.controller.running():
            yield

    @contextmanager
    def reading(self) -> Iterator[str]:
        """Run the reader beside the site's controller; yield HOST:PORT of its page."""
        own, log = self.controller, self.lab.dir / "reader.log"
        command = (str(own.program), "reader", "--site", "--state", str(own.state))
        daemon = launch([*as_user(own.user), *command], log, self.lab.env)
        try:
            wait_until(lambda: "page at http://" in log.read_text(), otherwise="no page")
            yield log.read_text().split("page at http://")[-1].partition("/")[0]
        finally:
            end([daemon])

    def configure(self, settings: Mapping[str, object]) -> None:
        """Write the site's settings, and how its users prove who they are."""
        key, munge = self.lab.dir / "bftrainer.key", self.lab.dir / "munge" / "socket"
        proofs = {"key_file": str(key), "munge_socket": str(munge)}
        (self.lab.dir / "bftrainer.toml").write_text(toml({**proofs, **settings}))

    def own_controller(self, user: str, settings: Mapping[str, object] = QUICK) -> Controller:
        """Return a user's own controller (personal mode); it is not started."""
        config = self.folder(user) / "bftrainer.toml"
        config.write_text(toml(settings))
        return Controller(self.lab, self.stage.program, user, ("--config", str(config)))

    def run(self, *command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command as a user; see ``Lab.run``."""
        return self.lab.run(*command, **options)

    def folder(self, user: str = "alice", name: str | None = None) -> Path:
        """Return a new folder that belongs to this user."""
        folder = self.lab.home(user) / (name or f"work-{next(self._numbers)}")
        folder.mkdir()
        give(folder, user)
        return folder

    def submit(
        self, script: str, nodes: str, *options: str, user: str = "alice", **others: Any
    ) -> int:
        """Submit a script as a trainer, as its user would; ``others`` are for ``Lab.run``.

        ``nodes`` that are N-N are always N: to sbatch they were 1 to N.
        """
        tagged = [] if any(one.startswith("--bftrainer") for one in options) else ["--bftrainer"]
        least, _, most = nodes.partition("-")
        if least == most != "1":
            tag = next(iter([*tagged, *(one for one in options if one.startswith("--bftrainer"))]))
            tagged = [f"{tag}{',' if '=' in tag else '='}min={least}"]
            options = tuple(one for one in options if one != tag)
        out = f"--output={self.folder(user)}/%a.out"
        words = (*tagged, f"-N{nodes}", out, *options)
        return self.lab.sbatch(*words, script=script, user=user, **others)

    def digits(self, nodes: str, samples: int, *options: str) -> tuple[int, Path]:
        """Submit the example, which pauses in each step; return its array id and its folder."""
        folder = self.folder()
        train = folder / "train.py"
        example = (self.stage.repo / "examples" / "digits" / "train.py").read_text()
        before, step, after = example.partition("step(samples=samples)\n")
        train.write_text(f"{before}time.sleep({_PAUSE_S}); {step}{after}")
        script = "#!/bin/bash\nexport OMP_NUM_THREADS=1\n"
        script += f"srun torchrun {train} --folder {folder} --samples {samples}\n"
        return self.submit(script, nodes, *options), folder

    @contextmanager
    def taken(self, nodes: int, *options: str) -> Iterator[float]:
        """Run an ordinary job on so many nodes meanwhile; yield when it was submitted.

        The time is that of ``time.monotonic``.
        """
        since_s = time.monotonic()
        words = ("-p", "main", f"-N{nodes}", "--exclusive", "-o", "/dev/null", *options)
        job = self.lab.sbatch(*words, script="#!/bin/sh\nsleep 1000\n")
        try:
            running = lambda: self.lab.squeue(job, "%t") == ["R"]  # noqa: E731
            wait_until(running, otherwise="the ordinary job waits")
            yield since_s
        finally:
            self.end(job)

    def end(self, *arrays: int) -> None:
        """Cancel trainers and wait until nothing of them is left."""
        self.run("scancel", *map(str, arrays), user=ADMIN)
        wait_until(lambda: all(set(self.lab.squeue(one, "%t")) <= _OVER for one in arrays))


@contextmanager
def prepared_site(nodes: int, **options: Any) -> Iterator[Site]:
    """Start a cluster with the plugin in it; its controller can be started.

    ``options`` are those of ``started_lab``.
    """
    port = f":{free_ports(1)[0]}"
    with started_lab(nodes, keeper=port, **options) as lab:
        yield site_on(lab, lab.cluster.address + port)


@contextmanager
def started_site(
    nodes: int, settings: Mapping[str, object] = QUICK, **options: Any
) -> Iterator[Site]:
    """Start a cluster with the plugin in it, and its controller; end all of it whatever happens."""
    with prepared_site(nodes, **options) as site, site.controlled(settings):
        yield site


def site_on(lab: Lab, keeper: str) -> Site:
    """Return the site on a running cluster; its controller is not started."""
    stage = staged(lab.dir / "stage", "alice")
    ours = replace(lab, env=lab.env | {"PATH": f"{stage.bin}:{lab.env['PATH']}"})
    user = "slurm" if os.getuid() == 0 else "alice"
    return Site(ours, stage, Controller(ours, stage.program, user, ("--mode", "site")), keeper)


def toml(settings: Mapping[str, object]) -> str:
    """Return the lines of a settings file."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
