"""Real training processes on this host that re-form in process, each on a node of its own."""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import itertools
import json
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from scripts.labcluster.keeper import Keeper
from scripts.labcluster.waiting import wait_until
from tests.elastic.elements import Elements

ARRAY = 9

_FORKS = multiprocessing.get_context("forkserver")


def fork_with(*modules: str) -> None:
    """Let the processes be forked from one that has these imported too.

    To import them anew costs each two to nine seconds of a core, and a test needs many processes.
    """
    _IMPORTED.extend(modules)
    _FORKS.set_forkserver_preload([*_IMPORTED, "tests.elastic.frozen"])


_IMPORTED: list[str] = []
fork_with("torch._dynamo", "tests.elastic.inprocess", "tests.elastic.sharding")


@dataclass(frozen=True)
class Step:
    """One rank's part of a step that was committed."""

    time_s: float  # CLOCK_MONOTONIC
    generation: int
    world: int
    rank: int
    number: int
    process: str


@dataclass(frozen=True)
class Part:
    """One rank's part of a step, whether it was committed or not."""

    generation: int
    rank: int
    step: int
    epoch: int
    samples: tuple[int, ...]


class Workers(Elements[Step]):
    """The elements of trainer 9, by task; what they write lies in ``folder``."""

    array = ARRAY

    def __init__(
        self, keeper: Keeper, folder: Path, script: str = "inprocess", **options: Any
    ) -> None:
        super().__init__(keeper)
        self._script = script
        self.folder = folder
        self.options = options
        self.processes: dict[int, list[ForkServerProcess]] = {}
        self._spawned: list[ForkServerProcess] = []
        folder.mkdir(exist_ok=True)

    def start(self, *tasks: int, local_world: int = 1, **environment: str) -> None:
        for task in tasks:
            self.processes[task] = [
                self._start(task, rank, local_world, environment) for rank in range(local_world)
            ]

    def _start(
        self, task: int, local_rank: int, local_world: int, environment: dict[str, str]
    ) -> ForkServerProcess:
        return self.fork(
            f"{task}.{local_rank}",
            BFTRAINER_ELEMENT=f"{ARRAY}_{task}",
            BFTRAINER_KEEPER=self.keeper.client.address,
            BFTRAINER_SECRET_FILE=str(self.keeper.state / "member.secret"),
            SLURMD_NODENAME=f"n{task}",
            LOCAL_RANK=str(local_rank),
            LOCAL_WORLD_SIZE=str(local_world),
            **environment,
        )

    def fork(self, name: str, **environment: str) -> ForkServerProcess:
        """Start the script with some variables more."""
        process = _FORKS.Process(
            target=_run,
            args=(self._script, self.folder, f"log.{name}", self.options, environment),
        )
        process.start()
        self._spawned.append(process)
        return process

    def signal(self, task: int, number: int) -> None:
        for process in self.processes[task]:
            assert process.pid is not None
            os.kill(process.pid, number)

    def kill(self, *tasks: int) -> None:
        """End the processes of nodes at once, as their loss does."""
        for process in [one for task in tasks for one in self.processes.pop(task)]:
            _kill(process)

    def end(self) -> None:
        for process in self._spawned:
            _kill(process)

    def wait(self, *tasks: int, timeout_s: float = 300.0) -> list[int]:
        """Return the exit codes of all processes of these tasks."""
        return [wait(one, timeout_s) for task in tasks for one in self.processes[task]]

    def steps(self, task: int | None = None) -> list[Step]:
        """Return the steps that were committed on a task's node (None: on all), in order."""
        found = []
        for path, (time_s, generation, world, rank, kind, *rest) in self._lines(task):
            if kind == "done":
                place = int(generation), int(world), int(rank)
                found.append(Step(float(time_s), *place, int(rest[0]), path.name))
        return sorted(found, key=lambda step: step.time_s)

    def tried_again(self, task: int) -> int:
        """Return how many steps a task has tried more than once, apart from rehearsals."""
        lines = [line for _, line in self._lines(task) if line[4] == "tried" and line[1] != "0"]
        return len(lines) - len({line[5] for line in lines})

    def parts(self) -> list[Part]:
        """Return all ranks' parts of steps, those in vain too."""
        found = []
        for _, (_, generation, _, rank, kind, *rest) in self._lines():
            if kind == "tried":
                step, epoch, samples = rest
                numbers = tuple(json.loads(samples))
                found.append(Part(int(generation), int(rank), int(step), int(epoch), numbers))
        return found

    def _lines(self, task: int | None = None) -> Iterator[tuple[Path, list[str]]]:
        for path in self.folder.glob("n*.*" if task is None else f"n{task}.*"):
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):  # else it was cut off by a kill
                    yield path, line.split(maxsplit=7)

    def wait_for_world(self, size: int, *tasks: int) -> None:
        """Wait until these tasks train in a world of so many ranks."""
        try:
            wait_until(lambda: all(self.last_world(task) == size for task in tasks))
        except TimeoutError as error:
            worlds = {task: self.last_world(task) for task in tasks}
            raise AssertionError(
                f"{error}: world of {size}, but {worlds}\n{self._stacks(tasks)}"
            ) from None

    def _stacks(self, tasks: Sequence[int]) -> str:
        """Return where the threads of these tasks' processes are, after what these have said."""
        for task in tasks:
            with suppress(ProcessLookupError):  # it has ended: its log says why
                self.signal(task, signal.SIGUSR1)
        time.sleep(1)
        logs = [path for task in tasks for path in self.folder.glob(f"log.{task}.*")]
        return "\n".join(f"{path.name}:\n{path.read_text()[-8000:]}" for path in logs)

    def pauses(self, task: int) -> list[float]:
        """Return how long (s) a node stood still each time that its world's size changed."""
        return [
            after.time_s - before.time_s
            for before, after in itertools.pairwise(self.steps(task))
            if before.process == after.process and before.world != after.world
        ]

    def ends(self) -> dict[str, tuple[str, int]]:
        """Return the weights' digest and the samples counted, by where they were written."""
        found = {}
        for path in self.folder.glob("end.*"):
            digest, samples = path.read_text().split()
            found[path.name] = (digest, int(samples))
        return found

    def trained(self) -> dict[int, Counter[int]]:
        """Return how often each sample counts, by epoch.

        A step counts as the generation trained it that went on from it: where a lost rank had
        committed it and the others had not, they trained it again later. What lies beyond the
        last step of the last generation was lost with all its ranks.
        """
        final: dict[int, int] = {}
        steps = self.steps()
        last = max((step.generation, step.number) for step in steps)[1]
        for step in steps:
            if step.number <= last:
                final[step.number] = step.generation
        counts: dict[int, Counter[int]] = {}
        for part in self.parts():
            if final.get(part.step) == part.generation:
                counts.setdefault(part.epoch, Counter()).update(part.samples)
        return counts


@contextmanager
def started_workers(
    keeper: Keeper, folder: Path, script: str = "inprocess", **options: Any
) -> Iterator[Workers]:
    workers = Workers(keeper, folder, script, **options)
    try:
        yield workers
    finally:
        workers.end()


def wait(process: ForkServerProcess, timeout_s: float = 300.0) -> int:
    """Return a process's exit code."""
    process.join(timeout_s)
    if process.exitcode is None:
        raise AssertionError(f"has not ended within {timeout_s} s")
    return process.exitcode


def _kill(process: ForkServerProcess) -> None:
    assert process.pid is not None
    if process.exitcode is not None:
        return  # its number may be another process's by now, as they come again within minutes
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # its DataLoader's workers too
    process.kill()
    process.join()


def log_of(workers: Workers, task: int) -> list[str]:
    return (workers.folder / f"log.{task}.0").read_text().splitlines()


def _run(
    script: str, folder: Path, log: str, options: dict[str, Any], environment: dict[str, str]
) -> None:
    os.setsid()
    os.environ.update(environment)
    with (folder / log).open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
    os.chdir(folder)
    multiprocessing.set_start_method(None, force=True)  # as in a script that was not forked so
    module = importlib.import_module(script if "." in script else f"tests.elastic.{script}")
    module.main(folder, options)


def changed_in_a_row(workers: Workers, changes: int, seed: int) -> list[int]:
    """Let nodes join and go at random, beginning with two, and return those that are left."""
    choose = random.Random(seed)
    present, fresh = [0, 1], 2
    for _ in range(changes):
        kind = choose.choice(["join", "join", "kill", "part", "sigterm"])
        if kind == "join" or len(present) == 1:
            if len(present) == 4:
                continue
            workers.start(fresh)
            present.append(fresh)
            fresh += 1
        else:
            task = present.pop(choose.randrange(len(present)))
            if kind == "kill":
                workers.kill(task)
            elif kind == "part":
                workers.part(task)
                workers.kill(task)
            else:
                workers.signal(task, signal.SIGTERM)
        if choose.random() < 0.7:  # else the next change comes into this one
            workers.wait_for_world(len(present), *present)
            workers.wait_for_steps(present[0], choose.randrange(1, 10))
    workers.wait_for_world(len(present), *present)
    return present
