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
def training(
    site: Site, nodes: str, before: str = "", command: str = "", *options: str
) -> Iterator[Training]:
    folder = site.folder()
    array = site.submit(batch_script(folder, before, command), nodes, *options)
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
    command = f"env KEEPS_STATE=yes {python} -u {tests}/by_srun.py"
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
    """It trains on with fewer nodes, and says why, also by the next controller."""

    def trains_on(until_s: float) -> None:
        wait_until(lambda: bool(trainer.steps(until_s)), PATIENCE_S)

    left_out = f"3 nodes, where its script fails: {ERROR}"
    with ExitStack() as job, ExitStack() as own:
        job.enter_context(site.taken(1))
        trainer = own.enter_context(training(site, "1-3", "export FAILS_ON=3"))
        trains_on(trainer.wait_for_world(2).time_s + 5)
        job.close()
        wait_until(lambda: trainer.published["left_out"] == left_out, PATIENCE_S)
        since_s = trainer.wait_for_world(2, trainer.steps()[-1].time_s).time_s
        trains_on(since_s + 8)
        agents = trainer.agents()
        site.controller.stop()
        site.controller.start()
        trains_on(trainer.steps()[-1].time_s + 5)
        assert len(agents) == trainer.steps()[-1].world == 2
        assert trainer.agents() == agents  # nobody was started again
        assert trainer.published["left_out"] == left_out
        for command in ("status", "show", "explain"):
            words = (command, *[str(trainer.array)][: command != "status"])
            told = site.run("bftrainer", *words).stdout
            assert ERROR in " ".join(told.split())


@pytest.mark.once
@pytest.mark.skipif(os.getuid() != 0, reason="needs root to be two users")
def test_a_user_with_a_controller_of_their_own_needs_no_plugin_for_it(site: Site) -> None:
    own, folder = site.own_controller("bob"), site.folder("bob")
    (folder / "train.sh").write_text(batch_script(folder))
    command = f"bftrainer submit --json --personal --state {own.state} -N 1-2 -p bftrainer"
    command += f" --output={folder}/%a.out {folder}/train.sh"
    with site.lab.plugstack(lambda line: ""), own.running():
        printed = json.loads(site.run(*command.split(), user="bob").stdout)
        assert differences("submit", printed) == []
        trainer = Training(site, printed["array"], folder)
        try:
            trainer.wait_for_world(2)
            with site.taken(2) as since_s:
                trainer.wait_for_world(1, since_s)
            wait_until(lambda: own.trainer(trainer.array)["launcher"] == "torchrun")
        finally:
            site.end(trainer.array)


BATCH = """#!/bin/bash
export OMP_NUM_THREADS=1
note() { echo "$1 $SLURMD_NODENAME" >> FOLDER/notes; }
note begun
[ -e FOLDER/one/stop ] || rm -rf FOLDER/one
mkdir -p FOLDER/one FOLDER/two
head=$(srun --nodes=1 --ntasks=1 -w "$SLURMD_NODENAME" hostname --ip-address)
[ -n "$head" ] || note headless
srun sh -c 'echo "prepared $SLURMD_NODENAME" >> FOLDER/notes'
sbatch --hold --wrap true && note successor
export RUN=$SLURM_JOB_ID
srun torchrun FOLDER/train.py FOLDER/one; note "one $?"
srun torchrun FOLDER/train.py FOLDER/two; note "two $?"
sleep 2
note done
"""


@pytest.mark.once
def test_a_script_runs_once_and_again_where_its_node_is_reclaimed_while_others_train_on(
    site: Site,
) -> None:
    def notes(kind: str) -> list[str]:
        return [
            line for line in (folder / "notes").read_text().splitlines() if line.startswith(kind)
        ]

    def head() -> str:
        """The node where the script has begun last."""
        return notes("begun")[-1].split()[1]

    def states() -> set[str]:
        return set(site.lab.squeue(one.array, "%t"))

    folder = site.folder()
    shutil.copy(REPO / "tests" / "elastic" / "ddp.py", folder / "train.py")
    array = site.submit(BATCH.replace("FOLDER", str(folder)), "1-3", "--bftrainer=batch=once")
    one, two = (Training(site, array, folder / part) for part in ("one", "two"))
    try:
        one.wait_for_world(3)
        for kind in ("begun", "prepared", "successor"):
            assert len(notes(kind)) == 1, kind
        with site.taken(1, "-w", head()) as since_s:
            fewer = one.wait_for_world(2, since_s)
            site.controller.keeper.kill()  # its controller starts another one
        again = one.wait_for_world(3, fewer.time_s)
        assert len(notes("begun")) == 1
        assert again.number > one.steps()[0].number  # nobody has removed the checkpoint
        (one.folder / "stop").touch()
        wait_until(lambda: len(notes("begun")) == 2, PATIENCE_S)
        two.wait_for_world(3)
        assert notes("one") == [f"one 0 {head()}"]
        assert max(step.time_s for step in one.steps()) < two.steps()[0].time_s
        (two.folder / "stop").touch()
        wait_until(lambda: states() <= {"CD", "F", "CA"}, PATIENCE_S)
        assert "CD" in states()
        assert len(notes("begun")) == 2
        for kind in ("two 0", "done"):
            assert len(notes(kind)) == 1, kind
        assert not notes("headless")
    finally:
        site.end(array)


@pytest.mark.once
@pytest.mark.skipif(
    os.getuid() != 0 or not shutil.which("ip", path="/usr/sbin:/sbin"),
    reason="needs root and iproute2",
)
def test_nodes_train_together_though_their_own_names_say_nothing_to_the_others() -> None:
    """Debian's installer gives a host's own name 127.0.1.1; others have none."""
    with started_site(nodes=2, networks=True) as site:
        hosts = site.lab.dir / "hosts"
        lines = hosts.read_text().splitlines()
        others = [line for line in lines if line.split()[-1:] not in (["n1"], ["n2"])]
        for names in ("127.0.1.1 n1\n127.0.1.1 n2\n", ""):
            hosts.write_text("\n".join(others) + "\n" + names)  # in place: it is mounted
            with training(site, "1-2", "unset GLOO_SOCKET_IFNAME") as trainer:
                trainer.wait_for_world(2)
                assert trainer.published["failures"] == 0
