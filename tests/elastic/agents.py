"""Real torchruns on this host, each as an element of one trainer on a node of its own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bftrainer_slurm.sizes import ANY, Sizes
from scripts.benchkit.steps import Step, StepLog
from scripts.labcluster.fleet import ARRAY, Node, environment_of
from scripts.labcluster.keeper import Keeper
from scripts.labcluster.processes import started
from scripts.labcluster.waiting import wait_until
from tests.elastic.forked import Torchrun

_SCRIPT = Path(__file__).with_name("ddp.py")


def steps_in(folder: Path) -> list[Step]:
    """Return the steps that ddp.py has logged on all nodes, in order of time."""
    return StepLog(folder).all()


class Agents:
    """The elements of trainer 7, by task; the logs of their steps lie in ``folder``.

    Where there is no ``launcher``, torchruns with these ``options`` are forked, which saves most of
    their processor time.
    """

    def __init__(self, keeper: Keeper, folder: Path, script: Path = _SCRIPT) -> None:
        self.keeper = keeper
        self.folder = folder
        self.launcher: Sequence[str | Path] = ()
        self.options: Sequence[str] = ()
        self._script = script
        self._log = StepLog(folder)
        self.nodes: dict[int, Node] = {}
        folder.mkdir(exist_ok=True)

    @property
    def processes(self) -> dict[int, Any]:
        """The agents, by task."""
        return {task: node.agent for task, node in self.nodes.items()}

    def start(self, *tasks: int, **environment: str) -> None:
        for task in tasks:
            (path := self.folder / f"{task}.log").write_text("")  # it can be read from now on
            own = environment_of(self.keeper, task, f"{ARRAY}.1", self.folder) | environment
            words = [*self.options, str(self._script), str(self.folder)]
            if self.launcher:
                self.nodes[task] = Node(
                    task, started([*self.launcher, *words], path, own, self.folder)
                )
            else:
                self.nodes[task] = Node(task, Torchrun(words, own, self.folder, path))

    def train_on(self, *tasks: int, **environment: str) -> None:
        """Start tasks that train together from their first step on.

        Otherwise those that are ready do not wait for one that is ten seconds later.
        """
        self.own(len(tasks), Sizes((len(tasks),)))
        self.start(*tasks, **environment)
        self.wait_for_world(len(tasks) * int(environment.get("PET_NPROC_PER_NODE", 1)), *tasks)
        self.own(len(tasks))

    def of(self, size: int) -> list[int]:
        """Have so many nodes train together: those that do, fewer of them, or new ones too."""
        tasks = [task for task, agent in self.processes.items() if agent.poll() is None]
        self.own(size)
        for task in tasks[size:]:
            self.kill(task)
        new = [max(self.nodes, default=0) + number for number in range(1, size - len(tasks) + 1)]
        self.start(*new)
        tasks = [*tasks[:size], *new]
        self.wait_for_world(size, *tasks)
        return tasks

    def own(self, want: int, sizes: Sizes = ANY) -> None:
        """Say to the keeper what the controller would: whose trainer it is, and its size."""
        self.keeper.client.own(ARRAY, os.getuid(), want, sizes)

    def part(self, *tasks: int) -> None:
        """Have tasks leave at a boundary; the keeper waits for 2 s, a busy host needs more."""
        wait_until(lambda: self.keeper.client.part(ARRAY, tasks), otherwise="have not left")

    def signal(self, task: int, number: int) -> None:
        """Send a signal to the agent alone."""
        if self.processes[task].poll() is None:
            os.kill(self.processes[task].pid, number)

    def signal_all(self, task: int, number: int) -> None:
        """Send a signal to all processes of an element, as Slurm does."""
        self.nodes[task].signal(number)

    def kill(self, task: int) -> None:
        """End the agent and all its processes at once, as the loss of a node does."""
        self.nodes[task].kill()

    def end(self) -> None:
        for node in self.nodes.values():
            node.kill()

    def steps(self, task: int) -> list[Step]:
        self._log.read()
        return list(self._log.of(f"n{task}"))

    def wait_for_steps(self, task: int, count: int = 5) -> None:
        """Wait until a task has made so many steps more."""
        before = len(self.steps(task))
        wait_until(lambda: len(self.steps(task)) >= before + count)

    def last_world(self, task: int) -> int:
        """Return the size of the world in which a task made its last step; 0: it made none."""
        steps = self.steps(task)
        return steps[-1].world if steps else 0

    def wait_for_world(self, size: int, *tasks: int) -> None:
        """Wait until these tasks train together, and nobody else with them."""

        def reached() -> bool:
            for task in tasks:
                assert self.processes[task].poll() is None, self.log(task)
            return all(self.last_world(task) == size for task in tasks)

        wait_until(reached)

    def pauses(self, task: int) -> list[float]:
        """Return how long (s) a node stood still each time that its process was replaced."""
        steps = self.steps(task)
        return [
            after.time_s - before.time_s
            for before, after in itertools.pairwise(steps)
            if before.process != after.process
        ]

    def log(self, task: int) -> str:
        return (self.folder / f"{task}.log").read_text()


@contextmanager
def started_agents(keeper: Keeper, folder: Path, script: Path = _SCRIPT) -> Iterator[Agents]:
    """Yield a trainer's elements, of which none runs yet; none outlives this."""
    agents = Agents(keeper, folder, script)
    try:
        yield agents
    finally:
        agents.end()
