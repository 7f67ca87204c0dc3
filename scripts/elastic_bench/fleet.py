"""The nodes of one trainer, each a torchrun agent on this host, and their keeper.

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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

from bftrainer_slurm.elastic.environment import element_environment, make_folder
from bftrainer_slurm.elastic.processes import kill_job, processes_with
from bftrainer_slurm.keeper.credentials import JOB_SECRET
from bftrainer_slurm.keeper.home import find_or_start
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.spec import TrainerRecord
from scripts.benchkit.logs import last_lines
from scripts.elastic_bench.figures import StepLogs
from scripts.labcluster.c10d import C10dStore
from scripts.labcluster.keeper import Keeper
from scripts.labcluster.processes import send_all
from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until

MAX_NODES = 16
GRACE_S = 0.5  # a trainer's, unless it asks for another
ARRAY = 12
_jobs = itertools.count(1)


class StuckError(Exception):
    """Nodes do not train on; the message has an agent's last lines."""


@dataclass(eq=False, slots=True)
class Node:
    """One node of the trainer."""

    task: int
    job: str
    agent: subprocess.Popen[bytes]
    started_s: float

    def kill(self) -> None:
        """End all its processes at once, as if it had lost its power."""
        kill_job(self.job, spare=())
        self.agent.wait()

    def ended(self) -> bool:
        """Return whether its agent has ended by itself."""
        return self.agent.poll() is not None


class Fleet:
    """All nodes of one trainer; leaving it ends them, the keeper, and what they wrote."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.nodes: list[Node] = []
        self._ends: list[Timer] = []  # of the nodes that were reclaimed
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # no disk is measured there
        self._folder = Path(tempfile.mkdtemp(prefix="bench-elastic-", dir=memory))

    def __enter__(self) -> Fleet:
        (self._folder / "logs").mkdir()
        make_folder(self._folder / "python")
        self.logs = StepLogs(self._folder / "logs")
        self._keeper = find_or_start(self._folder, "127.0.0.1:0")
        self._secret = Keeper(self._folder).secret(ARRAY)
        self._store = C10dStore() if self.setup is STOCK else None
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.kill()
        for end in self._ends:
            end.join()
        Keeper(self._folder).kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self, count: int = 1) -> None:
        """Start ``count`` nodes, as the controller does when a plan gives the trainer more."""
        self._keeper.own(ARRAY, os.getuid(), len(self.nodes) + count)
        for _ in range(count):
            self._start()

    def kill(self, node: Node) -> None:
        """Lose a node."""
        self.nodes.remove(node)
        node.kill()

    def reclaim(self, node: Node) -> None:
        """Let Slurm take a node: SIGTERM at once, and the end after its grace."""
        self.nodes.remove(node)
        send_all(processes_with(f"SLURM_JOB_ID={node.job}"), signal.SIGTERM)
        end = Timer(GRACE_S, node.kill)
        end.start()
        self._ends.append(end)

    def part(self, node: Node) -> None:
        """Let a node leave as planned; if the set-up cannot plan a leave, reclaim it."""
        if self.setup.parts:
            self._keeper.part(ARRAY, [node.task])
        self.reclaim(node)

    def settled(self, steps: int) -> bool:
        """Return whether each node made its last ``steps`` steps together with all the others."""
        self.logs.read()
        worlds = ([one.world for one in self.logs.of(node.job)[-steps:]] for node in self.nodes)
        return all(last == [len(self.nodes)] * steps for last in worlds)

    def wait(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """Wait until a condition holds.

        Raises:
            StuckError: it does not in this time, or an agent has failed.
        """

        def failed() -> list[Node]:
            return [node for node in self.nodes if node.agent.poll()]

        with suppress(TimeoutError):
            wait_until(lambda: condition() or failed(), timeout_s)
            if not failed():
                return
        node = [*failed(), *self.nodes][0]
        raise StuckError(f"an agent says: {last_lines(self._folder / f'{node.job}.out', 12)}")

    def _start(self) -> None:
        used = {node.task for node in self.nodes}
        task = next(task for task in itertools.count() if task not in used)
        job = f"{os.getpid()}{next(_jobs):05d}"
        name = f"n{task + 1}"
        joined = self._keeper.join(ARRAY, task, name, self._secret)
        assert joined is not None  # it has not finished
        variables = element_environment(
            ElementId(ARRAY, task),
            TrainerRecord(1, MAX_NODES),
            joined[0],
            self._keeper.address,
            {"PYTHONPATH": str(REPO)},
            self._folder / "python",
            "127.0.0.1",
        )
        variables |= {
            JOB_SECRET: self._secret.decode(),
            "SLURM_JOB_ID": job,
            "SLURMD_NODENAME": name,
            "BENCH_NODE": job,
            "OMP_NUM_THREADS": "1",
        }
        if self._store is not None:
            variables |= self._store.environment
        command = [sys.executable, "-m", "torch.distributed.run", *self._script()]
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
        self.nodes.append(Node(task, job, agent, time.monotonic()))

    def _script(self) -> list[str]:
        """Return the script that each node trains with, and its options."""
        return [str(Path(__file__).with_name("plain.py")), str(self._folder), *self.setup.words]


@dataclass(frozen=True, slots=True)
class Setup:
    """One way for a trainer to follow changes of its nodes."""

    name: str
    title: str
    parts: bool  # with our rendezvous, the controller can ask for a leave at a step boundary
    words: tuple[str, ...] = ()  # options of ``plain``


STOCK = Setup("c10d", "stock c10d, tuned", parts=False)
OURS = Setup("handler", "our rendezvous, script unchanged", parts=True)
_LARGE = "--width=333333"  # 25 million parameters, 300 MB with Adam's state
_LARGE_SETUPS = (
    Setup("told-large", "25 M, told, disk", True, ("--keep=told", _LARGE)),
    Setup("slow-large", "25 M, told, 200 MB/s", True, ("--keep=told", _LARGE, "--mb-per-s=200")),
    Setup("memory-large", "25 M, in memory", True, ("--keep=memory", _LARGE)),
)
TOLD = Setup("told", "our rendezvous, saves when told", True, ("--keep=told",))
MEMORY = Setup("memory", "our rendezvous, state in memory", True, ("--keep=memory",))
SETUPS = {one.name: one for one in (STOCK, OURS, TOLD, MEMORY, *_LARGE_SETUPS)}
