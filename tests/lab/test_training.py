"""An unchanged DDP script on a real cluster: nodes come and go, and it trains on at once."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts.benchkit.steps import Step
from scripts.labcluster.controller import Controller
from scripts.labcluster.site import Site, started_site
from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until
from tests.cli.documented import differences
from tests.elastic.agents import steps_in

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.timeout(1500)]
PATIENCE_S = 400  # a node that joins imports torch first, and all nodes are this host


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with started_site(nodes=3) as running:
        yield running


@dataclass(frozen=True)
class Training:
    """A trainer that logs each step of each process, see tests/elastic/ddp.py."""

    site: Site
    array: int
    folder: Path

    def steps(self, since_s: float = 0.0) -> list[Step]:
        """Return the steps of all nodes after a moment, in order of time."""
        return [step for step in steps_in(self.folder) if step.time_s > since_s]

    def wait_for_world(self, world: int, since_s: float = 0.0) -> Step:
        """Wait until so many nodes train together; return their first step."""
        wait_until(lambda: any(s.world == world for s in self.steps(since_s)), PATIENCE_S)
        return next(step for step in self.steps(since_s) if step.world == world)

    def agents(self) -> dict[str, str]:
        """Return since when each of its elements runs."""
        return self.site.lab.running(self.array)

    @property
    def published(self) -> dict[str, Any]:
        return self.site.controller.trainer(self.array)


@contextmanager
def training(site: Site, nodes: str, before: str = "", command: str = "") -> Iterator[Training]:
    folder = site.folder()
    array = site.submit(batch_script(folder, before, command), nodes)
    try:
        yield Training(site, array, folder)
    finally:
        site.end(array)


def batch_script(folder: Path, before: str = "", command: str = "") -> str:
    script = shutil.copy(REPO / "tests" / "elastic" / "ddp.py", folder / "train.py")
    command = command or f"torchrun {script}"
    return f"#!/bin/bash\nexport OMP_NUM_THREADS=1\n{before}\nsrun {command} {folder}\n"


def test_the_others_train_on_at_once_when_slurm_takes_a_node(site: Site) -> None:
    with training(site, "1-3") as trainer:
        trainer.wait_for_world(3)
        before, agents = trainer.steps()[-1], trainer.agents()
        with site.taken(1) as since_s:
            first = trainer.wait_for_world(2, since_s)
            assert first.number >= before.number  # nothing lost: the script saves each step
            left = trainer.agents()
            assert len(left) == 2
            assert left.items() <= agents.items()  # nobody was started again
        again = trainer.wait_for_world(3, first.time_s)
        assert again.number > first.number
        assert trainer.agents().items() >= left.items()
        assert trainer.published["failures"] == 0


@pytest.mark.nightly
def test_tasks_of_srun_have_their_state_in_memory(site: Site) -> None:
    """No file has it, and a node that joins has nothing of it yet."""
    tests, python = REPO / "tests" / "elastic", site.stage.repo / ".venv" / "bin" / "python"
    command = f"env SCRIPT=kept.py {python} -u {tests}/by_srun.py"
    with training(site, "1-3", command=command) as trainer:
        trainer.wait_for_world(3)
        with site.taken(1) as since_s:
            first = trainer.wait_for_world(2, since_s)
            before = max(step.number for step in trainer.steps() if step.time_s < since_s)
            assert before - 1 <= first.number
        assert trainer.wait_for_world(3, first.time_s).number > first.number


ERROR = "ValueError: a batch of 64 does not divide by 3"


@pytest.mark.once
def test_a_size_on_which_the_script_fails_is_left_out_when_the_trainer_grows(site: Site) -> None:
    with ExitStack() as job:
        job.enter_context(site.taken(1))
        with training(site, "1-3", "export FAILS_ON=3") as trainer:
            step = trainer.wait_for_world(2)
            trains_on(trainer, step.time_s + 5)
            job.close()
            stays_on_two_nodes(trainer)


def stays_on_two_nodes(trainer: Training) -> None:
    """It does so, and says why, also by the next controller."""
    site, left_out = trainer.site, f"3 nodes, where its script fails: {ERROR}"
    wait_until(lambda: trainer.published["left_out"] == left_out, PATIENCE_S)
    since_s = trainer.wait_for_world(2, trainer.steps()[-1].time_s).time_s
    trains_on(trainer, since_s + 8)
    agents = trainer.agents()
    site.controller.stop()
    site.controller.start()
    trains_on(trainer, trainer.steps()[-1].time_s + 5)
    assert len(agents) == trainer.steps()[-1].world == 2
    assert trainer.agents() == agents  # nobody was started again
    assert trainer.published["left_out"] == left_out
    for command in ("status", "show", "explain"):
        told = site.run("bftrainer", command, *[str(trainer.array)][: command != "status"]).stdout
        assert ERROR in " ".join(told.split())


def trains_on(trainer: Training, until_s: float) -> None:
    wait_until(lambda: bool(trainer.steps(until_s)), PATIENCE_S)


@pytest.mark.once
@pytest.mark.skipif(os.getuid() != 0, reason="needs root to be two users")
def test_a_user_with_a_controller_of_their_own_needs_no_plugin_for_it(site: Site) -> None:
    own = site.own_controller("bob")
    with site.lab.plugstack(lambda line: ""), own.running():
        trains_by_submit(site, own, "bob", "--personal", "--state", str(own.state))


def trains_by_submit(site: Site, controller: Controller, user: str, *options: str) -> None:
    folder = site.folder(user)
    (folder / "train.sh").write_text(batch_script(folder))
    command = ("bftrainer", "submit", "--json", *options, "-N", "1-2", "-p", "bftrainer")
    command += (f"--output={folder}/%a.out", str(folder / "train.sh"))
    printed = json.loads(site.run(*command, user=user).stdout)
    assert differences("submit", printed) == []
    trainer = Training(site, printed["array"], folder)
    try:
        trainer.wait_for_world(2)
        with site.taken(2) as since_s:
            trainer.wait_for_world(1, since_s)
        wait_until(lambda: controller.trainer(trainer.array)["launcher"] == "torchrun")
    finally:
        site.end(trainer.array)
