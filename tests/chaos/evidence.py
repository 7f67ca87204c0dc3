"""Keeps what explains a violation: logs, what Slurm says, what was published, what runs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from scripts.benchkit.command import json_text
from tests.chaos.observe import element_processes
from tests.chaos.world import World

# Checkpoints come and go while they are copied.
_UNKEPT = shutil.ignore_patterns("*.pt", "checkpoints")
_ASKED = {
    "squeue": ["squeue", "-a", "-r", "-t", "all", "-o", "%i %F %K %T %r %N %R %P %V %S %e %Q"],
    "sinfo": ["sinfo", "-N", "-l"],
    "jobs": ["scontrol", "-a", "show", "job"],
    "nodes": ["scontrol", "show", "node"],
}


def keep(world: World, folder: Path) -> None:
    """Copy all of it into a folder of its own."""
    shutil.copytree(world.folder / "log", folder / "log")
    for what, command in _ASKED.items():
        try:
            done = world.run(*command, user="root")
            (folder / what).write_text(done.stdout + done.stderr)
        except subprocess.TimeoutExpired:
            (folder / what).write_text("no answer")
    (folder / "status.json").write_text(json_text(world.status()))
    processes = element_processes(f"{world.folder}/slurm.conf")
    (folder / "processes").write_text("".join(f"{one}\n" for one in processes))
    for path in (*world.folder.glob("controller-*.log"), *world.service.state.glob("*.log")):
        shutil.copy(path, folder)
    for one in world.trainers:
        shutil.copytree(one.folder, folder / one.name, ignore=_UNKEPT)
    world.tell(f"what explains it is in {folder}")
