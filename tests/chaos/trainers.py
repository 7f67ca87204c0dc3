"""The trainers that train while things break, as users submit them; ``job`` is what they run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from scripts.labcluster.site import Site
from tests.chaos.training import Training

_JOB = Path(__file__).resolve().parent / "job.py"
_SCRIPT = """#!/bin/bash
export OMP_NUM_THREADS=1
srun torchrun {words}{job} {kind} {folder} {repo}/examples/digits/train.py
"""
_MAX_NODES = 2


@dataclass(frozen=True, slots=True)
class Ask:
    """What a trainer runs (``kind``, as ``job`` has it) and asks for, and its ``torchrun`` words.

    It has so many training ``processes`` on each node.
    """

    kind: str
    options: tuple[str, ...] = ()
    torchrun: str = ""
    max_nodes: int = _MAX_NODES
    processes: int = 1


WHOLE_NODES: Mapping[str, Ask] = MappingProxyType({"digits": Ask("digits"), "saves": Ask("saves")})


def parts(gpus: int) -> dict[str, Ask]:
    """Return what trainers ask for, by name, where jobs share nodes of so many GPUs.

    Two of them fit a node. One has a process for each of its GPUs. The others have one a node: this
    host has few cores.
    """
    half, one = max(1, gpus // 2), "--nproc-per-node=1 "
    two = min(2, half)
    whole = (f"--gpus-per-node={gpus}", "--exclusive")
    return {
        "digits": Ask("digits", (f"--gpus-per-node={two}",), processes=two),
        "saves": Ask("saves", (f"--gpus-per-node={half}",), one),
        "whole": Ask("saves", whole, one, max_nodes=1),
    }


@dataclass
class Trainer:
    """A trainer as its user submitted it; submitted again, it goes on in the same folder."""

    name: str
    ask: Ask
    folder: Path
    training: Training
    array: int = 0
    submissions: int = 0

    def submit(self, site: Site) -> None:
        job = shutil.copy(_JOB, site.lab.dir)  # where Slurm's users can read it
        where = {"job": job, "folder": self.folder, "repo": site.stage.repo}
        script = _SCRIPT.format(words=self.ask.torchrun, kind=self.ask.kind, **where)
        options = (f"-J{self.name}", f"--output={self.folder}/%a.out", *self.ask.options)
        self.array = site.submit(script, f"1-{self.ask.max_nodes}", *options)
        self.submissions += 1


def submitted(site: Site, ask: Ask, name: str) -> Trainer:
    folder, steps = site.folder(name=name), site.folder(name=f"{name}/steps")
    made = Trainer(name, ask, folder, Training(steps))
    made.submit(site)
    return made
