from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from bftrainer_slurm.model import Element, ElementId, ElementState, Node, TimeLimit, Trainer
from bftrainer_slurm.slurm.commands import CommandGateway
from bftrainer_slurm.slurm.gateway import Gateway, GatewayError
from bftrainer_slurm.slurm.look_gateway import LookGateway
from bftrainer_slurm.slurm.open import GROW, LOOK
from bftrainer_slurm.slurm.pyslurm_gateway import PyslurmGateway
from bftrainer_slurm.slurm.run import SlurmRunner
from scripts.labcluster import plugin
from scripts.labcluster.lab import Lab
from scripts.labcluster.waiting import wait_until
from tests.tools import program

NODES = frozenset(f"n{number}" for number in range(1, 9))

# What daemons say among themselves, and sdiag's own question.
_NOT_OURS = re.compile(r"MESSAGE_|REQUEST_COMPLETE_|REQUEST_STEP_COMPLETE|REQUEST_STATS_INFO")


@dataclass(frozen=True)
class Bench:
    """A cluster, and one of the gateways to it."""

    lab: Lab
    gateway: CommandGateway

    def submit(
        self, tasks: int = 4, script: str = "sleep 600", user: str = "alice", **options: str
    ) -> int:
        """Submit a trainer as the plugin would; return its array's job id."""
        settings = {
            "array": f"0-{tasks - 1}",
            "nodes": "1",
            "ntasks": "1",
            "partition": "bftrainer",
            "time-min": "1",
            "time": "60",
            "output": "/dev/null",
            "comment": f"bftrainer:min=1,max={tasks}",
        } | {name.replace("_", "-"): value for name, value in options.items()}
        words = [f"--{name}={value}" for name, value in settings.items()]
        words += ["--hold", "--exclusive", "--requeue"]
        return self.lab.sbatch(*words, script=f"#!/bin/sh\n{script}\n", user=user)

    def trainer(self, array: int) -> Trainer:
        (found,) = [item for item in self.gateway.queue().trainers if item.array == array]
        return found

    def element(self, array: int, task: int) -> Element:
        (found,) = [item for item in self.trainer(array).elements if item.id.task == task]
        return found

    def state(self, array: int, task: int) -> ElementState:
        return self.element(array, task).state

    def wait_for(self, array: int, state: ElementState, *tasks: int) -> None:
        wait_until(lambda: {self.state(array, task) for task in tasks} == {state})

    def node(self, name: str) -> Node:
        (found,) = [item for item in self.gateway.nodes() if item.name == name]
        return found

    def grow(
        self,
        array: int,
        *placed: tuple[int, str],
        limit: TimeLimit | None = None,
        through: Gateway | None = None,
    ) -> None:
        """Let elements start, given as task and node; which one gets which node is Slurm's."""
        (through or self.gateway).grow(
            [ElementId(array, task) for task, _ in placed],
            nodes := frozenset(node for _, node in placed),
            NODES - nodes,
            limit,
            excluded=self.trainer(array).demands.excluded,
        )

    def run_on(self, array: int, task: int, node: str) -> None:
        """Grow an element and wait until it runs there."""
        self.grow(array, (task, node))
        self.wait_for(array, ElementState.RUNNING, task)
        assert self.element(array, task).node == node

    def shrink(self, array: int, *tasks: int) -> None:
        """Shrink by these elements and wait until they are held."""
        self.gateway.shrink([ElementId(array, task) for task in tasks])
        self.wait_for(array, ElementState.HELD, *tasks)

    def asked(self, request: Callable[[], object]) -> dict[str, int]:
        """Return what slurmctld was asked while this request was made."""
        before = self._counts()
        request()
        after = self._counts()
        return {name: n - before.get(name, 0) for name, n in after.items() if n != before.get(name)}

    def _counts(self) -> Mapping[str, int]:
        text = self.lab.run("sdiag", user="root").stdout
        by_type = text.partition("statistics by message type")[2].partition("by user")[0]
        found = re.findall(r"^\s+(\S+)\s+\(\s*\d+\)\s+count:(\d+)", by_type, re.MULTILINE)
        return {name: int(count) for name, count in found if not _NOT_OURS.match(name)}


def runner(
    folder: Path, timeout_s: float = 60.0, environment: Mapping[str, str] | None = None, **does: str
) -> SlurmRunner:
    """A runner that finds these programs, which are shell scripts."""
    for name, script in does.items():
        program(folder, name, script)
    return SlurmRunner(timeout_s, {"PATH": f"{folder}:/usr/bin:/bin", **(environment or {})})


@pytest.fixture(scope="session")
def programs(lab: Lab) -> Path:
    """A folder with bftrainer-grow and bftrainer-look, built for the Slurm that runs here."""
    return plugin.built()


@pytest.fixture(scope="session", params=["commands", "look", "pyslurm"])
def gateway(request: pytest.FixtureRequest, lab: Lab, programs: Path) -> CommandGateway:
    runner = SlurmRunner(environment=lab.env)
    grow_program, look_program = f"{programs}/{GROW}", f"{programs}/{LOOK}"
    if request.param == "commands":
        return CommandGateway(runner, grow_program)
    if request.param == "scontrol":  # it grows without our program, too
        return CommandGateway(runner)
    if request.param == "look":
        return LookGateway(look_program, runner, grow_program)
    # libslurm reads this process's environment, once.
    os.environ["SLURM_CONF"] = lab.env["SLURM_CONF"]
    try:
        return PyslurmGateway(runner, grow_program)
    except GatewayError as error:
        pytest.skip(str(error))


@pytest.fixture
def bench(lab: Lab, gateway: CommandGateway) -> Iterator[Bench]:
    """The shared cluster; afterwards nothing runs on it any more."""
    yield Bench(lab, gateway)
    clear(lab)


def ordinary(bench: Bench, *options: str, script: str = "sleep 600", user: str = "bob") -> int:
    """Submit an ordinary job, which preempts trainers; return its id."""
    words = ("--partition=main", "--exclusive", "--time=5", "--output=/dev/null", *options)
    return bench.lab.sbatch(*words, script=f"#!/bin/sh\n{script}\n", user=user)


def clear(lab: Lab) -> None:
    """Cancel everything and wait until all nodes are idle."""
    users = ("alice", "bob", "carol") if os.getuid() == 0 else (os.environ.get("USER", "root"),)
    for user in users:
        lab.run("scancel", f"--user={user}", user="root", check=False)
    lab.wait_until_idle()


@pytest.fixture
def as_bob(lab: Lab, tmp_path: Path) -> SlurmRunner:
    """Runs Slurm's commands as another user, for which a command of the same name sees to it."""
    for name in ("scontrol", "scancel"):
        drop = "setpriv --reuid=bob --regid=bob --clear-groups"
        program(tmp_path, name, f'exec {drop} /usr/bin/{name} "$@"')
    return SlurmRunner(environment=lab.env | {"PATH": f"{tmp_path}:{lab.env['PATH']}"})
