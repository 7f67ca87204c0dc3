"""The nodes of one trainer on this host, each a torchrun and what it starts, and their keeper.

They come and go as on a cluster; benches and tests start theirs here.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import Protocol

from bftrainer_slurm.elastic.environment import element_environment, make_folder
from bftrainer_slurm.elastic.processes import below, kill_job, processes_with
from bftrainer_slurm.keeper.credentials import JOB_SECRET
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.spec import TrainerRecord
from scripts.benchkit.logs import last_lines
from scripts.benchkit.steps import StepLog
from scripts.labcluster.c10d import C10dStore
from scripts.labcluster.keeper import Keeper, started_keeper
from scripts.labcluster.processes import send_all, started
from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until

ARRAY = 7
CHANGES = ("join", "leave", "reclaim", "kill", "zero")
PLANNED = ("join", "leave")  # the others take a node without a word
_MOST_NODES = 16
_GRACE_S = 0.5  # a trainer's, unless it asks for another
_END_S = 120.0
_jobs = itertools.count(1)


class StuckError(Exception):
    """Nodes do not train on; the message has an agent's last lines."""


class Process(Protocol):
    """An agent; ``subprocess.Popen`` is one."""

    pid: int

    def poll(self) -> int | None:
        """Return its exit code; None: it runs."""

    def wait(self, timeout: float) -> int:
        """Return its exit code when it has ended."""


@dataclass(eq=False, slots=True)
class Node:
    """One node of the trainer; ``job`` is its SLURM_JOB_ID, and names its files and steps."""

    task: int
    agent: Process
    job: str = ""
    started_s: float = 0.0

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all its processes, as Slurm does."""
        if self.agent.poll() is None:
            send_all([self.agent.pid, *below(self.agent.pid)], number)

    def kill(self) -> None:
        """End all its processes at once, as if it had lost its power."""
        self.signal(signal.SIGKILL)
        if self.job:
            kill_job(self.job, spare=())  # also those whose parents had ended
        self.agent.wait(_END_S)


def environment_of(keeper: Keeper, task: int, run: str, folder: Path) -> dict[str, str]:
    """Return a torchrun's environment in an element of ``ARRAY``; ``folder`` is for PYTHONPATH."""
    element, slurm = ElementId(ARRAY, task), {"PYTHONPATH": str(REPO)}
    record, address = TrainerRecord(1, _MOST_NODES), keeper.client.address
    variables = element_environment(element, record, run, address, slurm, folder, "127.0.0.1")
    secret = {JOB_SECRET: keeper.secret(ARRAY).decode()}
    node = {"SLURMD_NODENAME": f"n{task}", "OMP_NUM_THREADS": "1"}
    return os.environ | variables | secret | node


class Fleet:
    """A trainer's nodes. Its ``folder`` has their steps in ``steps``, and their output."""

    def __init__(
        self, keeper: Keeper, folder: Path, script: Sequence[str | Path], store: C10dStore | None
    ) -> None:
        self.folder, self.log = folder, StepLog(folder / "steps")
        self.nodes: list[Node] = []
        self._keeper, self._script, self._store = keeper, script, store
        self._ends: list[Timer] = []  # of the nodes that were reclaimed

    def change(self, kind: str, place: int = 0) -> None:
        """Let a node join, or the one at ``place`` go.

        The plan says so (leave), Slurm takes it (reclaim), or it loses its power (kill). At zero
        all are taken, and two start when they are gone.
        """
        match kind:
            case "join":
                self.start()
            case "leave":
                self._leave(self.nodes[place])
            case "reclaim":
                self._reclaim(self.nodes[place])
            case "kill":
                self.nodes.pop(place).kill()
            case "zero":
                for node in list(self.nodes):
                    self._reclaim(node)
                self._wait_for_ends()
                self.start(2)

    def start(self, count: int = 1) -> None:
        """Start ``count`` nodes, as the controller does when a plan gives the trainer more."""
        self._keeper.client.own(ARRAY, os.getuid(), len(self.nodes) + count)
        for _ in range(count):
            self._start()

    def _leave(self, node: Node) -> None:
        """Let a node leave at a step boundary, if its rendezvous knows that, and end it then."""
        if self._store is None:
            self.wait(lambda: self._keeper.client.part(ARRAY, [node.task]), _END_S)
        self._reclaim(node)

    def _reclaim(self, node: Node) -> None:
        """Let Slurm take a node: SIGTERM at once, and the end after its grace."""
        self.nodes.remove(node)
        send_all(processes_with(f"SLURM_JOB_ID={node.job}"), signal.SIGTERM)
        end = Timer(_GRACE_S, node.kill)
        end.start()
        self._ends.append(end)

    def _wait_for_ends(self) -> None:
        for end in self._ends:
            end.join()

    def together(self, steps: int) -> bool:
        """Return whether each node made its last ``steps`` steps together with all the others."""
        self.log.read()
        worlds = ([one.world for one in self.log.of(node.job)[-steps:]] for node in self.nodes)
        return all(last == [len(self.nodes)] * steps for last in worlds)

    def over(self) -> bool:
        """Return whether all agents have ended by themselves."""
        return all(node.agent.poll() is not None for node in self.nodes)

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
        raise StuckError(f"an agent says: {last_lines(self.folder / f'{node.job}.out', 12)}")

    def _start(self) -> None:
        used = {node.task for node in self.nodes}
        task = next(task for task in itertools.count(1) if task not in used)
        secret, job = self._keeper.secret(ARRAY), f"{os.getpid()}{next(_jobs):05d}"
        joined = self._keeper.client.join(ARRAY, task, f"n{task}", secret)
        assert joined is not None  # it has not finished
        variables = environment_of(self._keeper, task, joined[0], self.folder / "python")
        variables |= {"SLURM_JOB_ID": job} | (self._store.environment if self._store else {})
        command = [sys.executable, "-m", "torch.distributed.run", *self._script]
        # In a folder that has no other package's metadata.
        agent = started(command, self.folder / f"{job}.out", variables, self.folder)
        self.nodes.append(Node(task, agent, job, time.monotonic()))

    def end(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.kill()
        self._wait_for_ends()


@contextmanager
def started_fleet(script: Path, *options: str, c10d: bool = False) -> Iterator[Fleet]:
    """Yield a trainer without a node yet, and a keeper or ``c10d``'s store for it.

    The script is given the fleet's folder and then its options.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # no disk is measured there
    temporary = partial(TemporaryDirectory[str], ignore_cleanup_errors=True, dir=memory)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(temporary(prefix="fleet-")))
        (folder / "steps").mkdir()
        make_folder(folder / "python")
        keeper = stack.enter_context(started_keeper(folder))
        store = C10dStore() if c10d else None
        fleet = Fleet(keeper, folder, [script, folder, *options], store)
        stack.callback(fleet.end)
        yield fleet
