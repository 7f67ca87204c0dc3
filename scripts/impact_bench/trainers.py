"""The trainers whose elements ordinary jobs meet: paced ones, well-behaved or hostile."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from scripts.labcluster.site import Site
from scripts.labcluster.waiting import wait_until

_HERE = Path(__file__).resolve().parent
_PATIENCE_S = 120.0
_TRAINERS = 2  # so that they share the nodes
# Jobs come and go a hundred times faster than on a real cluster: look as often as that allows.
_SETTINGS = {"forward_time_s": 30, "queue_interval_s": 2}

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


@contextmanager
def training(site: Site, nodes: int, kind: Kind, name: str) -> Iterator[Work]:
    """Let trainers fill the cluster, and end them afterwards; what is yielded is true then.

    Raises:
        TimeoutError: no node trains within two minutes; the message has the trainers' last words.
    """
    work = Work()
    with site.controlled({**_SETTINGS, "reserve_nodes": kind.reserve}):
        try:
            for number in range(_TRAINERS):
                folder = _made_folder(site, f"{name}-trainer-{number}")
                work.arrays.append(_submit(site, folder, nodes // _TRAINERS, kind.hostile))
            work.nodes = _wait_until_full(site, nodes - kind.reserve)
            yield work
            for trainer in site.controller.status().get("trainers", []):
                work.samples += trainer["samples"] or 0.0
                work.reclaimed += trainer["reclaimed"]
        finally:
            for array in work.arrays:
                site.run("scancel", str(array))
            site.lab.wait_until_idle()


def _made_folder(site: Site, name: str) -> Path:
    folder = site.folder(name=name)
    for program in ("paced.py", "hostile.sh"):
        # The clone itself may lie where Slurm's users cannot read.
        shutil.copy(_HERE / program, folder)
    return folder


def _submit(site: Site, folder: Path, most: int, hostile: bool) -> int:
    script = _SCRIPT.format(
        folder=folder,
        train=site.stage.repo / "examples" / "digits" / "train.py",
        before=f". {folder}/hostile.sh" if hostile else "",
        hostile=f"bash -c '. {folder}/hostile.sh; \"$@\"' hostile " if hostile else "",
    )
    return site.submit(script, f"1-{most}", f"--output={folder}/%a.out", cwd=folder)


def _wait_until_full(site: Site, nodes: int) -> int:
    """Wait until so many nodes train; return how many do.

    The controller leaves nodes alone on which elements are slow to end, as hostile ones may be.
    """

    def used() -> int:
        trainers = site.controller.status().get("trainers", [])
        return sum(len(one["nodes"]) for one in trainers if one["samples"])

    with suppress(TimeoutError):
        wait_until(lambda: used() >= nodes, _PATIENCE_S)
    trains = used()
    if trains == 0:
        words = [f"nothing trains after {_PATIENCE_S:g} s", *_last_words(site)]
        raise TimeoutError("\n".join(words))
    return trains


def _last_words(site: Site) -> list[str]:
    words = [
        f"{path}: {line}"
        for path in sorted(site.lab.home("alice").rglob("*.out"))
        for line in path.read_text(errors="replace").splitlines()[-3:]
    ]
    return words[-12:]
