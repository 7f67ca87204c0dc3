"""The trainers that train while things break, as users submit them; ``jobs`` has their scripts."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from scripts.chaos_suite.training import Training
from scripts.labcluster.site import Site

_JOBS = Path(__file__).resolve().parent / "jobs"
_DIGITS = """#!/bin/bash
export OMP_NUM_THREADS=1
srun torchrun {jobs}/digits.py {repo}/examples/digits/train.py {folder}
"""
_IN_PROCESS = """#!/bin/bash
export OMP_NUM_THREADS=1
srun torchrun {jobs}/inprocess.py {folder}
"""
SCRIPTS = {"digits": _DIGITS, "inprocess": _IN_PROCESS}
_NODES = "1-2"
MAX_NODES = 2


@dataclass
class Job:
    """A trainer as its user submitted it; the same folder serves it again if it must be."""

    name: str
    script: str
    folder: Path
    training: Training
    array: int = 0
    submissions: int = 0

    def submit(self, site: Site) -> None:
        """Submit it, for the first time or again."""
        options = (f"-J{self.name}", f"--output={self.folder}/%a.out")
        self.array = site.submit(self.script, _NODES, *options)
        self.submissions += 1


def lay_out_scripts(site: Site) -> None:
    """Put the scripts where Slurm's users can read them."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(_JOBS, site.lab.dir / "jobs", ignore=ignored)


def submitted(site: Site, kind: str, name: str) -> Job:
    """Make a trainer's folder, and submit it."""
    folder, steps = site.folder(name=name), site.folder(name=f"{name}/steps")
    jobs = site.lab.dir / "jobs"
    script = SCRIPTS[kind].format(folder=folder, jobs=jobs, repo=site.stage.repo)
    job = Job(name, script, folder, Training(steps))
    job.submit(site)
    return job
