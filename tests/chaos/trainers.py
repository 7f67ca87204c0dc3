"""The trainers that train while things break, as users submit them; ``job`` is what they run."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from scripts.labcluster.site import Site
from tests.chaos.training import Training

_JOB = Path(__file__).resolve().parent / "job.py"
_SCRIPT = """#!/bin/bash
export OMP_NUM_THREADS=1
srun torchrun {job} {kind} {folder} {repo}/examples/digits/train.py
"""
KINDS = ("digits", "inprocess")
MAX_NODES = 2


@dataclass
class Trainer:
    """A trainer as its user submitted it; submitted again, it goes on in the same folder."""

    name: str
    script: str
    folder: Path
    training: Training
    array: int = 0
    submissions: int = 0
    max_nodes: int = MAX_NODES

    def submit(self, site: Site) -> None:
        """Submit it, for the first time or again."""
        options = (f"-J{self.name}", f"--output={self.folder}/%a.out")
        self.array = site.submit(self.script, f"1-{self.max_nodes}", *options)
        self.submissions += 1


def submitted(site: Site, kind: str, name: str) -> Trainer:
    """Make a trainer's folder, and submit it."""
    folder, steps = site.folder(name=name), site.folder(name=f"{name}/steps")
    shutil.copy(_JOB, site.lab.dir)  # where Slurm's users can read it
    job = f"{site.lab.dir}/{_JOB.name}"
    script = _SCRIPT.format(job=job, kind=kind, folder=folder, repo=site.stage.repo)
    made = Trainer(name, script, folder, Training(steps))
    made.submit(site)
    return made
