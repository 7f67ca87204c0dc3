"""Real torchruns on this host, each as an element of one trainer on a node of its own."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bftrainer_slurm.elastic.processes import below
from bftrainer_slurm.sizes import ANY, Sizes
from scripts.labcluster.keeper import Keeper
from scripts.labcluster.waiting import wait_until
from tests.elastic.forked import Torchrun

ARRAY = 7
_SCRIPT = Path(__file__).with_name("ddp.py")


@dataclass(frozen=True)
class Step:
    time_s: float  # CLOCK_MONOTONIC
    world: int
    number: int
    process: int


def steps_in(folder: Path, node: str = "n*") -> list[Step]:
    """Return the steps that ddp.py has logged on a node, or on all, in order of time."""
    found = []
    for path in folder.glob(f"{node}.*"):
        for line in path.read_text().splitlines(keepends=True):
            match line.split():
                case [time_s, world, number] if line.endswith("\n"):
                    process = int(path.suffix[1:])
                    found.append(Step(float(time_s), int(world), int(number), process))
    return sorted(found, key=lambda step: step.time_s)


class Agents:
    """The elements of trainer 7, by task; the logs of their steps lie in ``folder``.

    Where no ``launcher`` is given, torchruns with these ``options`` are forked, which saves most of
    their processor time.
    """

    def __init__(
        self,
        keeper: Keeper,
        folder: Path,
        script: Path = _SCRIPT,
        launcher: Sequence[str | Path] = (),
        options: Sequence[str] = (),
    ) -> None:
        self.keeper = keeper
        self.folder = folder
        self._options = options
        self._launcher = launcher
        self._script = script
        self.processes: dict[int, subprocess.Popen[bytes] | Torchrun] = {}
        folder.mkdir(exist_ok=True)

    def start(self, *tasks: int, **environment: str) -> None:
        for task in tasks:
            self.processes[task] = self._start(
                task, os.environ | self._environment(task) | environment
            )

    def _start(self, task: int, environment: dict[str, str]) -> subprocess.Popen[bytes] | Torchrun:
        path = self.folder / f"{task}.log"
        if not self._launcher:
            command = [*self._options, str(self._script), str(self.folder)]
            return Torchrun(command, environment, self.folder, path)
        with path.open("wb") as log:
            return subprocess.Popen(
                [*self._launcher, self._script, self.folder],
                env=environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _environment(self, task: int) -> dict[str, str]:
        return {
            "BFTRAINER_ELEMENT": f"{ARRAY}_{task}",
            "BFTRAINER_KEEPER": self.keeper.client.address,
            "BFTRAINER_JOB_SECRET": self.keeper.secret(ARRAY).decode(),
            "SLURMD_NODENAME": f"n{task}",
            "PET_NNODES": "1:8",
            "PET_NPROC_PER_NODE": "1",
            "PET_RDZV_BACKEND": "bftrainer",
            "PET_RDZV_ID": f"{ARRAY}.1",
            "PET_MAX_RESTARTS": "1000000",
            "PET_LOCAL_ADDR": "127.0.0.1",
            "OMP_NUM_THREADS": "1",
        }

    def train_on(self, *tasks: int, **environment: str) -> None:
        """Start tasks that train together from their first step on.

        Otherwise those that are ready do not wait for one that is ten seconds later.
        """
        self.own(len(tasks), Sizes((len(tasks),)))
        self.start(*tasks, **environment)
        self.wait_for_world(len(tasks), *tasks)
        self.own(len(tasks))

    def own(self, want: int, sizes: Sizes = ANY) -> None:
        """Say to the keeper what the controller would: whose trainer it is, and its size."""
        self.keeper.client.own(ARRAY, os.getuid(), want, sizes)

    def part(self, *tasks: int) -> None:
        """Have tasks leave at a boundary; the keeper waits for 2 s, a busy host needs more."""
        wait_until(lambda: self.keeper.client.part(ARRAY, tasks), otherwise="have not left")

    def signal(self, task: int, number: int) -> None:
        """Send a signal to the agent alone."""
        self.processes[task].send_signal(number)

    def signal_all(self, task: int, number: int) -> None:
        """Send a signal to all processes of an element, as Slurm does."""
        agent = self.processes[task].pid
        for process in (agent, *below(agent)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def kill(self, task: int) -> None:
        """End the agent and all its processes at once, as the loss of a node does."""
        self.signal_all(task, signal.SIGKILL)
        self.processes[task].wait(120)

    def end(self) -> None:
        for task in self.processes:
            self.kill(task)

    def steps(self, task: int) -> list[Step]:
        return steps_in(self.folder, f"n{task}")

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

    def print_pauses(self, what: str, *tasks: int) -> None:
        for task in tasks:
            print(f"{what}: the others' pause on n{task}: {self.pauses(task)[-1]:.3f} s")

    def log(self, task: int) -> str:
        return (self.folder / f"{task}.log").read_text()


@contextmanager
def started_agents(keeper: Keeper, folder: Path, *script: Path, **options: Any) -> Iterator[Agents]:
    """Yield a trainer's elements, of which none runs yet; none outlives this."""
    agents = Agents(keeper, folder, *script, **options)
    try:
        yield agents
    finally:
        agents.end()
