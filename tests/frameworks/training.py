"""A framework's example as a trainer on a site, and what its recorded steps say."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.benchkit.steps import Step, StepLog
from scripts.labcluster.site import Site
from scripts.labcluster.users import give
from scripts.labcluster.waiting import wait_until

_RECORDER = Path(__file__).with_name("recorder.py")
_PATIENCE_S = 600.0
_SETTLED = 5  # steps
_SCRIPT = """#!/bin/bash
export RECORDS={folder}/records OMP_NUM_THREADS=1 BFTRAINER_PRELOAD=recorder
export PYTHONPATH=${{PYTHONPATH:+$PYTHONPATH:}}{folder}
cd {folder}
srun torchrun {train} --folder {folder}/output --steps 1000000 {options}
"""


@dataclass(frozen=True, slots=True)
class Change:
    """What a change of the nodes has cost."""

    stood_s: float  # from the last step before to the first one after
    lost: int  # steps that are trained again
    took_s: float  # from its cause to the first step after


class Training:
    """One trainer that runs an example."""

    def __init__(self, site: Site, example: str, nodes: int, options: str = "", spec: str = ""):
        self.folder = site.folder()
        records = self.folder / "records"
        records.mkdir()
        shutil.copy(_RECORDER, self.folder)
        give(records, "alice")
        train = site.stage.repo / "examples" / "frameworks" / example / "train.py"
        batch = _SCRIPT.format(folder=self.folder, train=train, options=options)
        out = f"--output={self.folder}/%a.out"
        self.array = site.submit(batch, f"1-{nodes}", out, f"--bftrainer={spec}")
        self._log = StepLog(records)

    def steps(self) -> list[Step]:
        """Return all steps of all processes so far, in order of time."""
        return self._log.all()

    def wait_for(self, world: int, since_s: float = 0.0) -> None:
        """Wait until so many nodes train together."""

        def together() -> bool:
            last = self.steps()[-_SETTLED * world :]
            settled = all(step.world == world and step.time_s > since_s for step in last)
            return settled and len(last) == _SETTLED * world

        wait_until(together, _PATIENCE_S, f"{world} nodes do not train together")

    def change(self, world: int, since_s: float) -> Change:
        """Wait until ``world`` nodes train, and return what the change to it since has cost."""
        self.wait_for(world, since_s)
        steps = self.steps()
        after = next(step for step in steps if step.time_s > since_s and step.world == world)
        first_s = after.time_s
        before = [step for step in steps if step.time_s < first_s]
        return Change(
            first_s - before[-1].time_s,
            max(step.number for step in before) - after.number + 1,
            first_s - since_s,
        )

    def log(self) -> str:
        """Return all that its elements have printed."""
        return "\n".join(
            f"== {path.name}\n{path.read_text(errors='replace')}"
            for path in sorted(self.folder.glob("*.out"))
        )


@contextmanager
def training(site: Site, example: str, nodes: int, **options: str) -> Iterator[Training]:
    """Submit an example, and end it."""
    running = Training(site, example, nodes, **options)
    try:
        running.wait_for(nodes)
        yield running
    finally:
        site.end(running.array)


def lent(site: Site, nodes: int) -> float:
    """Let an ordinary job run on so many nodes; return when they were idle again."""
    options = ("-p", "main", f"-N{nodes}", "--exclusive", "-o", "/dev/null")
    job = site.lab.sbatch(*options, script="#!/bin/sh\nsleep 10\n")
    try:
        wait_until(lambda: site.lab.squeue(job, "%t") == ["CD"])
        return time.monotonic()
    finally:
        site.end(job)
