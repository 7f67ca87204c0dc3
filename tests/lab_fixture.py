"""A real private Slurm cluster for tests: ``scripts/lab``, and commands run in it."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.labcluster.configuration import exported

REPO = Path(__file__).resolve().parent.parent
_SCRIPT = str(REPO / "scripts" / "lab")


@dataclass(frozen=True)
class Lab:
    """A running cluster. Without root there is but one user, and ``user`` is ignored."""

    dir: Path
    env: dict[str, str]

    def run(
        self, *command: str | Path, user: str = "alice", check: bool = True, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as one of the cluster's users (or as slurm, or root)."""
        if os.getuid() == 0 and user != "root":
            options |= {"user": user, "group": user, "extra_groups": []}
        settings: dict[str, Any] = {"env": self.env | options.pop("env", {})}
        settings |= {"cwd": self.home(user), "timeout": 120} | options
        done = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, **settings
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{command}: {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def sbatch(self, *options: str, script: str, user: str = "alice") -> int:
        """Submit a script; return the job id."""
        submitted = self.run("sbatch", "--parsable", *options, user=user, input=script)
        return int(submitted.stdout.strip())

    def squeue(self, job: int, form: str) -> list[str]:
        """Return a line per element or job, formatted as squeue does."""
        listed = self.run(
            "squeue", "-h", "-r", "-t", "all", "-j", str(job), "-o", form, check=False
        )
        return listed.stdout.split("\n")[:-1]

    def node(self, name: str, what: str) -> None:
        """Disturb a node: stop, start, hang, slow, cut, mend."""
        subprocess.run([_SCRIPT, "node", name, what, "--dir", str(self.dir)], check=True)

    def home(self, user: str) -> Path:
        """Return a folder that the user may write to."""
        home = self.dir / "home" / user
        return home if home.is_dir() else self.dir


@contextmanager
def started_lab(
    nodes: int = 4,
    plugstack: Sequence[str] = (),
    conf: Sequence[str] = (),
    kill_wait: int = 5,
    bf_interval: int = 2,
    keeper: str | None = None,
    stock: bool = False,
    qos: bool = False,
    networks: bool = False,
    auth_slurm: bool = False,
    linuxproc: bool = False,
    configless: bool = False,
) -> Iterator[Lab]:
    """Start a cluster in a folder of its own; end it whatever happens.

    With our plugin in it where there is a ``keeper``, whose elements use c10d where ``stock``;
    with accounting, and preemption by QOS, where ``qos``; its nodes may have ``networks`` of their
    own, and the keeper's host may then be empty; with ``auth_slurm`` there is no MUNGE; with
    ``linuxproc`` Slurm does without cgroups; ``configless`` nodes ask for their configuration.
    """
    folder = Path(tempfile.mkdtemp(prefix="bftrainer-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    where = ["--dir", str(folder / "lab")]
    options = ["--nodes", str(nodes), "--kill-wait", str(kill_wait)]
    options += ["--bf-interval", str(bf_interval)]
    # Guards end processes by user and job id: clusters side by side must not share ids.
    options += ["--conf", f"FirstJobId={1 + random.randrange(600) * 100_000}"]
    for line in plugstack:
        options += ["--plugstack", line]
    for line in conf:
        options += ["--conf", line]
    if keeper is not None:
        options += ["--keeper", keeper]
    if stock:
        options += ["--stock"]
    if qos:
        options += ["--qos"]
    if networks:
        options += ["--networks"]
    if auth_slurm:
        options += ["--auth-slurm"]
    if linuxproc:
        options += ["--linuxproc"]
    if configless:
        options += ["--configless"]
    try:
        subprocess.run([_SCRIPT, "up", *where, *options], check=True, stdout=subprocess.DEVNULL)
        printed = subprocess.run(
            [_SCRIPT, "env", *where], check=True, capture_output=True, text=True
        ).stdout
        yield Lab(folder / "lab", {**os.environ, **exported(printed)})
    finally:
        subprocess.run([_SCRIPT, "down", *where], check=True)
        shutil.rmtree(folder)


def slurm_version() -> tuple[int, int]:
    """Return the installed Slurm's version, (0, 0) where there is none."""
    try:
        said = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True).stdout
    except OSError:
        return 0, 0
    version = re.search(r"(\d+)\.(\d+)", said)
    return (0, 0) if version is None else (int(version[1]), int(version[2]))


def slurm_is_missing() -> str | None:
    """Say why tests that need Slurm cannot run here, None where they can."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [
        name
        for name in ("munged", "slurmctld", "slurmd", "sbatch")
        if not shutil.which(name, path=path)
    ]
    return f"not installed: {', '.join(missing)} ('make setup' does it)" if missing else None
