"""A batch script runs once on a real cluster, and what its sruns train runs on all nodes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.benchkit.steps import Step
from scripts.labcluster.site import Site, started_site
from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until
from tests.elastic.agents import steps_in

pytestmark = [pytest.mark.slurm, pytest.mark.once, pytest.mark.torch, pytest.mark.timeout(2400)]
PATIENCE_S = 400  # a node that joins imports torch first, and all nodes are this host

SCRIPT = """#!/bin/bash
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
exit CODE
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with started_site(nodes=2) as running:
        yield running


@dataclass(frozen=True)
class Once:
    """A trainer whose script notes what it does, and where."""

    site: Site
    array: int
    folder: Path

    def notes(self, kind: str) -> list[str]:
        path = self.folder / "notes"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.startswith(kind)]

    def head(self) -> str:
        """The node where the script has begun last."""
        return self.notes("begun")[-1].split()[1]

    def steps(self, part: str = "one", since_s: float = 0.0) -> list[Step]:
        return [step for step in steps_in(self.folder / part) if step.time_s > since_s]

    def wait_for_world(self, world: int, part: str = "one", since_s: float = 0.0) -> Step:
        def found() -> list[Step]:
            return [step for step in self.steps(part, since_s) if step.world == world]

        wait_until(lambda: bool(found()), PATIENCE_S)
        return found()[0]

    def stop(self, part: str) -> None:
        (self.folder / part / "stop").touch()

    def wait_for_end(self, state: str = "CD") -> None:
        def states() -> set[str]:
            return set(self.site.lab.squeue(self.array, "%t"))

        wait_until(lambda: states() <= {"CD", "F", "CA"}, PATIENCE_S)
        assert state in states()


@contextmanager
def once(site: Site, nodes: str, code: int = 0, script: str = SCRIPT) -> Iterator[Once]:
    folder = site.folder()
    shutil.copy(REPO / "tests" / "elastic" / "ddp.py", folder / "train.py")
    text = script.replace("FOLDER", str(folder)).replace("CODE", str(code))
    array = site.submit(text, nodes, "--bftrainer=batch=once")
    try:
        yield Once(site, array, folder)
    finally:
        site.end(array)


def test_it_runs_once_and_again_where_its_node_is_reclaimed_while_others_train_on(
    site: Site,
) -> None:
    with once(site, "1-2") as trainer:
        trainer.wait_for_world(2)
        for kind in ("begun", "prepared", "successor"):
            assert len(trainer.notes(kind)) == 1, kind
        with site.taken(1, "-w", trainer.head()) as since_s:
            alone = trainer.wait_for_world(1, since_s=since_s)
            site.controller.keeper.kill()  # its controller starts another one
        again = trainer.wait_for_world(2, since_s=alone.time_s)
        assert len(trainer.notes("begun")) == 1
        assert again.number > trainer.steps()[0].number  # nobody has removed the checkpoint
        trainer.stop("one")
        wait_until(lambda: len(trainer.notes("begun")) == 2, PATIENCE_S)
        trainer.wait_for_world(2, "two")
        assert trainer.notes("one") == [f"one 0 {trainer.head()}"]
        assert max(step.time_s for step in trainer.steps()) < trainer.steps("two")[0].time_s
        trainer.stop("two")
        trainer.wait_for_end()
        assert len(trainer.notes("begun")) == 2
        for kind in ("two 0", "done"):
            assert len(trainer.notes(kind)) == 1, kind
        assert not trainer.notes("headless")
