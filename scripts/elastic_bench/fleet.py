"""The nodes of one trainer, each a torchrun agent on this host, and the keeper they meet by.

A node is everything that has its SLURM_JOB_ID in its environment, as for the real element.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bftrainer_slurm.elastic.environment import element_environment
from bftrainer_slurm.elastic.folder import make_folder
from bftrainer_slurm.elastic.processes import job_processes, kill_job
from bftrainer_slurm.keeper.credentials import SECRET_FILE
from bftrainer_slurm.keeper.home import find_or_start, own_secret
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.spec import TrainerRecord
from scripts.benchkit.logs import last_lines
from scripts.elastic_bench.setups import Setup
from scripts.elastic_bench.steplog import StepLogs
from scripts.labcluster.c10d import C10dStore
from scripts.labcluster.keeper import Keeper
from scripts.labcluster.processes import send_all
from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until

MAX_NODES = 16
GRACE_S = 0.5  # a trainer's, unless it asks for another
_ARRAY = 12
_jobs = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained: the model, the seconds of a step, and of the script's checkpoints."""

    model: str
    compute_s: float
    save_every_s: float


@dataclass(eq=False, slots=True)
class Node:
    """One node of the trainer."""

    task: int
    job: str
    agent: subprocess.Popen[bytes]
    started_s: float

    def kill(self) -> None:
        """End everything of it at once, as if its power had gone."""
        kill_job(self.job, spare=())
        self.agent.wait()

    def terminate(self) -> None:
        """Send SIGTERM to everything of it, as Slurm does when it takes a node back."""
        send_all(job_processes(self.job), signal.SIGTERM)

    def ended(self) -> bool:
        """Return whether its agent has ended by itself."""
        return self.agent.poll() is not None


class Fleet:
    """All nodes of one trainer; leaving it ends them, the keeper, and what they wrote."""

    def __init__(
        self,
        setup: Setup,
        training: Training,
        environment: Callable[[int], Mapping[str, str]] = lambda task: {},
    ) -> None:
        """Make ready; ``environment`` are further variables for each task."""
        self.setup = setup
        self._environment = environment
        self.nodes: list[Node] = []
        self._ending: list[tuple[Node, float]] = []
        self._training = training
        self._folder = Path(tempfile.mkdtemp(prefix="bench-elastic-", dir=_scratch()))

    def __enter__(self) -> Fleet:
        (self._folder / "logs").mkdir()
        make_folder(self._folder / "python")
        self.logs = StepLogs(self._folder / "logs")
        self._keeper = find_or_start(self._folder, "127.0.0.1:0")
        self._store = C10dStore() if self.setup.backend == "c10d" else None
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes + [node for node, _ in self._ending]:
            node.kill()
        Keeper(self._folder).kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self, count: int = 1) -> list[Node]:
        """Start nodes, as the controller does for a plan that gives the trainer so many more."""
        self._keeper.own(_ARRAY, os.getuid(), len(self.nodes) + count)
        return [self._start() for _ in range(count)]

    def kill(self, node: Node) -> None:
        """Lose a node."""
        self.nodes.remove(node)
        node.kill()

    def reclaim(self, node: Node) -> None:
        """Let Slurm take a node: SIGTERM at once, and the end after its grace."""
        self.nodes.remove(node)
        node.terminate()
        self._ending.append((node, time.monotonic() + GRACE_S))

    def part(self, node: Node) -> bool:
        """Let a node leave as planned; return whether it had left before it was ended.

        Where no leave can be planned, this is a reclaim.
        """
        in_time = self._keeper.part(_ARRAY, [node.task]) if self.setup.parts else True
        self.reclaim(node)
        return in_time

    def settled(self, steps: int) -> bool:
        """Return whether each node's last so many steps were made by all nodes that there are."""
        self.logs.read()
        last = [self.logs.of(node.job)[-steps:] for node in self.nodes]
        return all(
            len(made) == steps and all(one.world == len(self.nodes) for one in made)
            for made in last
        )

    def wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something is so; return whether it came in time."""
        try:
            wait_until(condition, timeout_s, pause=self._rest)
        except TimeoutError:
            return False
        return True

    def messages(self, node: Node, lines: int = 12) -> str:
        """Return the last lines that a node printed."""
        return last_lines(self._folder / f"{node.job}.out", lines)

    def _rest(self, seconds: float) -> None:
        """Let time pass, and end the nodes whose grace is over."""
        time.sleep(seconds)
        now_s = time.monotonic()
        for node, end_s in self._ending:
            if now_s >= end_s:
                node.kill()
        self._ending = [(node, end_s) for node, end_s in self._ending if now_s < end_s]

    def _start(self) -> Node:
        used = {node.task for node in self.nodes}
        task = next(task for task in itertools.count() if task not in used)
        job = f"{os.getpid()}{next(_jobs):05d}"
        name = f"n{task + 1}"
        run_id = self._keeper.join(_ARRAY, task, name)
        variables = element_environment(
            ElementId(_ARRAY, task),
            TrainerRecord(1, MAX_NODES),
            run_id,
            self._keeper.address,
            {"PYTHONPATH": str(REPO)},
            self._folder / "python",
            "127.0.0.1",
        )
        variables |= {
            SECRET_FILE: str(own_secret(self._folder)),
            "SLURM_JOB_ID": job,
            "SLURMD_NODENAME": name,
            "BENCH_NODE": job,
            "OMP_NUM_THREADS": "1",
            **self._environment(task),
        }
        if self._store is not None:
            variables |= self._store.environment
        script = Path(__file__).with_name(f"{self.setup.script}.py")
        command = [sys.executable, "-m", "torch.distributed.run", str(script)]
        command += ["--folder", str(self._folder), "--model", self._training.model]
        command += ["--compute", str(self._training.compute_s)]
        command += ["--save-every", str(self._training.save_every_s)]
        with (self._folder / f"{job}.out").open("wb") as output:
            agent = subprocess.Popen(
                command,
                env=os.environ | variables,
                cwd=self._folder,  # no other package's metadata there
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        node = Node(task, job, agent, time.monotonic())
        self.nodes.append(node)
        return node


def _scratch() -> str | None:
    """Return a folder in memory, so that no disk is measured, where there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
