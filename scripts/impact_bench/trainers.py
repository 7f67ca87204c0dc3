"""The trainers whose elements ordinary jobs meet: paced ones, well-behaved or hostile."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from scripts.demonstration.cluster import QUICK, Cluster
from scripts.impact_bench.course import wait_until_idle

_HERE = Path(__file__).resolve().parent
_PATIENCE_S = 120.0
_TRAINERS = 2  # so that they share the nodes
# Jobs come and go a hundred times faster than on a real cluster: look as often as that allows.
_QUEUE_INTERVAL_S = 2

_SCRIPT = """#!/bin/bash
export OMP_NUM_THREADS=1
{before}
# All nodes share this host's processors, which Slurm's daemons have to themselves on real nodes.
srun {hostile}nice -n 10 torchrun {folder}/paced.py {train} --folder {folder} \\
  --samples 100000000
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """``hostile`` ones do all not to be ended; ``reserve`` idle nodes are left to ordinary jobs."""

    hostile: bool = False
    reserve: int = 0


@dataclass
class Work:
    """What trainers did beside a chunk."""

    arrays: list[int] = field(default_factory=list)
    nodes: int = 0  # that trained when the chunk began
    samples: float = 0.0
    reclaimed: int = 0  # elements that Slurm took the node of


class NoTrainingError(Exception):
    """The trainers do not train; the message has their last words."""


@contextmanager
def training(cluster: Cluster, nodes: int, kind: Kind, name: str) -> Iterator[Work]:
    """Let trainers fill the cluster, and end them afterwards; what is yielded is true then.

    Raises:
        NoTrainingError: no node trains within two minutes.
    """
    work = Work()
    settings = {
        **QUICK,
        "queue_interval_s": _QUEUE_INTERVAL_S,
        "reserve_nodes": kind.reserve,
    }
    with cluster.controller(settings):
        try:
            for number in range(_TRAINERS):
                folder = _made_folder(cluster, f"{name}-trainer-{number}")
                work.arrays.append(_submit(cluster, folder, nodes // _TRAINERS, kind.hostile))
            work.nodes = _wait_until_full(cluster, nodes - kind.reserve)
            yield work
            for trainer in cluster.status().get("trainers", []):
                work.samples += trainer["samples"] or 0.0
                work.reclaimed += trainer["reclaimed"]
        finally:
            for array in work.arrays:
                cluster.run("scancel", str(array))
            wait_until_idle(cluster)


def user_folder(cluster: Cluster, name: str) -> Path:
    """Return a new folder of the user whose jobs these are."""
    folder = cluster.folder / "jobs" / name
    folder.mkdir(parents=True)
    if cluster.user is not None:
        shutil.chown(folder, cluster.user)
    return folder


def _made_folder(cluster: Cluster, name: str) -> Path:
    folder = user_folder(cluster, name)
    for program in ("paced.py", "hostile.sh"):
        # The clone itself may lie where Slurm's users cannot read.
        shutil.copy(_HERE / program, folder)
    return folder


def _submit(cluster: Cluster, folder: Path, most: int, hostile: bool) -> int:
    script = _SCRIPT.format(
        folder=folder,
        train=cluster.stage.repo / "examples" / "digits" / "train.py",
        before=f". {folder}/hostile.sh" if hostile else "",
        hostile=f"bash -c '. {folder}/hostile.sh; \"$@\"' hostile " if hostile else "",
    )
    options = ("--parsable", "--bftrainer", f"-N1-{most}", f"--output={folder}/%a.out")
    submitted = cluster.run("sbatch", *options, input=script, cwd=str(folder)).stdout
    return int(submitted.strip().partition(";")[0])


def _wait_until_full(cluster: Cluster, nodes: int) -> int:
    """Wait until so many nodes train; return how many do.

    The controller leaves nodes alone on which elements are slow to end, as hostile ones may be.
    """
    deadline_s = time.monotonic() + _PATIENCE_S
    used = 0
    while used < nodes and time.monotonic() < deadline_s:
        time.sleep(0.5)
        trainers = cluster.status().get("trainers", [])
        used = sum(len(one["nodes"]) for one in trainers if one["samples"])
    if used == 0:
        raise NoTrainingError(
            "\n".join([f"nothing trains after {_PATIENCE_S:g} s", *_last_words(cluster)])
        )
    return used


def _last_words(cluster: Cluster) -> list[str]:
    words = [
        f"{path}: {line}"
        for path in sorted((cluster.folder / "jobs").rglob("*.out"))
        for line in path.read_text(errors="replace").splitlines()[-3:]
    ]
    return words[-12:]
