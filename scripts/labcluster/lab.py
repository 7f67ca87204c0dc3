"""A running private cluster in a temporary folder, and commands run in it as any of its users.

How it is laid out is in ``cluster``; our controller on it is in ``site``.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.labcluster import cluster
from scripts.labcluster.configuration import Options
from scripts.labcluster.users import as_user
from scripts.labcluster.waiting import wait_until

ADMIN = "root"  # without root: whoever runs this
_NO_SUCH_JOB = "Invalid job id"
_FREE = ("idle", "plnd")  # planned: idle, and Slurm saves it for a waiting job

Tell = Callable[[str], object]


class CommandError(cluster.LabError):
    """A command in the cluster failed; the message has its output."""


@dataclass(frozen=True)
class Lab:
    """A running cluster. Without root there is only one user, and ``user`` is ignored."""

    cluster: cluster.Cluster
    env: dict[str, str]  # of its users

    @property
    def dir(self) -> Path:
        """The cluster's folder."""
        return self.cluster.folder

    def run(
        self,
        *command: str | Path,
        user: str = "alice",
        check: bool = True,
        timeout_s: float = 300.0,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as one of the cluster's users (or as slurm, or root).

        ``options`` are subprocess.run's; its ``env`` is added to the users' own.

        Raises:
            CommandError: it failed, and ``check`` is set.
            subprocess.TimeoutExpired: it took too long.
        """
        home = self.home(user)
        environment = self.env | {"HOME": str(home)} | options.pop("env", {})
        settings = {"cwd": home, **options}
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [*as_user(user), *map(str, command)],
            capture_output=True,
            text=True,
            env=environment,
            timeout=timeout_s,
            **settings,
        )
        if check and done.returncode != 0:
            said = f"{done.stdout}{done.stderr}".strip()
            raise CommandError(f"{' '.join(map(str, command))}: {done.returncode}: {said}")
        return done

    def sbatch(self, *options: str, script: str, user: str = "alice", **others: Any) -> int:
        """Submit a script; return the job id."""
        done = self.run("sbatch", "--parsable", *options, user=user, input=script, **others)
        return int(done.stdout.partition(";")[0])

    def squeue(self, job: int, form: str) -> list[str]:
        """Return a line per element or job, in squeue's format ``form``.

        There is none if Slurm does not know the job.

        Raises:
            TimeoutError: slurmctld does not answer.
        """
        lines = list[str]()

        def answered() -> bool:
            words = ("squeue", "-h", "-r", "-t", "all", "-j", str(job), "-o", form)
            listed = self.run(*words, check=False)
            lines[:] = listed.stdout.split("\n")[:-1]
            return listed.returncode == 0 or _NO_SUCH_JOB in listed.stderr

        wait_until(answered, otherwise="squeue has no answer")
        return lines

    def running(self, array: int) -> dict[str, str]:
        """Return when each running element was started, as Slurm says."""
        lines = (line.split() for line in self.squeue(array, "%i %t %S"))
        return {element: since for element, state, since in lines if state == "R"}

    def states(self) -> dict[str, str]:
        """Return Slurm's word for the state of each node."""
        listed = self.run("sinfo", "-h", "-N", "-p", "main", "-o", "%N %t").stdout
        return dict(line.split() for line in listed.splitlines())

    def busy(self) -> dict[str, str]:
        """Return the states of the nodes on which nothing can start just now."""
        return {node: state for node, state in self.states().items() if state not in _FREE}

    def wait_until_idle(self, timeout_s: float = 240.0) -> None:
        """Wait until nothing runs or ends on any node.

        Raises:
            TimeoutError: something still does; the message says where.
        """
        try:
            wait_until(lambda: set(self.states().values()) == {"idle"}, timeout_s)
        except TimeoutError as error:
            nodes = ", ".join(f"{node} is {state}" for node, state in self.states().items())
            raise TimeoutError(f"the nodes are not idle within {timeout_s:g} s: {nodes}") from error

    @contextmanager
    def plugstack(self, change: Callable[[str], str]) -> Iterator[None]:
        """Have another plugstack.conf meanwhile: what ``change`` makes of the present one."""
        path = self.dir / "plugstack.conf"
        before = path.read_text()
        path.write_text(change(before))
        try:
            yield
        finally:
            path.write_text(before)

    def home(self, user: str) -> Path:
        """Return a folder that the user may write to."""
        home = self.dir / "home" / user
        return home if home.is_dir() else self.dir


@contextmanager
def started_lab(
    nodes: int = 4,
    *,
    conf: Sequence[str] = (),
    tell: Tell = lambda text: None,
    **options: Any,
) -> Iterator[Lab]:
    """Start a cluster in a folder of its own; end it whatever happens, Ctrl-C and SIGTERM included.

    ``options`` are those of ``configuration.Options``.

    Raises:
        cluster.LabError: it does not start; the message says why.
    """
    # Our plugin ends processes by user and job id, so clusters side by side must not share ids.
    first = f"FirstJobId={1 + random.SystemRandom().randrange(600) * 100_000}"
    folder = Path(tempfile.mkdtemp(prefix="bftrainer-", dir="/var/tmp"))
    tell(f"starting a private Slurm cluster of {nodes} nodes in {folder}")
    try:
        quick = {"kill_wait": 5, "bf_interval": 2}
        asked = Options(nodes, conf=(first, *conf), **{**quick, **options})
        started = cluster.up(folder, asked)
        yield Lab(started, os.environ | started.environment)
    finally:
        # Ctrl-C and SIGTERM wait, so that no half of a cluster is left behind.
        held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            if (running := cluster.find(folder)) is not None:
                cluster.down(running)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
