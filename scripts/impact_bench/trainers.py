"""The trainers whose elements ordinary jobs meet: they sleep, or resist."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from scripts.labcluster.site import Site
from scripts.labcluster.waiting import wait_until

_HERE = Path(__file__).resolve().parent
_PATIENCE_S = 120.0
_TRAINERS = 2  # so that they share the nodes

# Elements that sleep cost no processor; all nodes share this host's.
_POLITE = """#!/bin/bash
srun sleep infinity
"""
_HOSTILE = """#!/bin/bash
. {folder}/hostile.sh
srun bash -c '. {folder}/hostile.sh; sleep infinity'
"""


class Kind(Enum):
    """What trainers do: sleep, or do all not to be ended."""

    POLITE = "polite"
    HOSTILE = "hostile"


_SCRIPTS = {Kind.POLITE: _POLITE, Kind.HOSTILE: _HOSTILE}


@dataclass
class Work:
    """What trainers did beside the stream."""

    arrays: list[int] = field(default_factory=list)
    nodes: int = 0  # that were used when it began
    reclaimed: int = 0  # elements that Slurm took the node of
    left: int = 0  # those that the controller ended, mostly for a job that was expected


@contextmanager
def training(site: Site, nodes: int, kind: Kind, settings: Mapping[str, object]) -> Iterator[Work]:
    """Let trainers fill the cluster, and end them afterwards; what is yielded is true then.

    The controller has its defaults but for these ``settings``.

    Raises:
        TimeoutError: no node is used within two minutes; the message has the trainers' last words.
    """
    work = Work()
    with site.controlled(settings):
        try:
            for number in range(_TRAINERS):
                folder = _made_folder(site, f"trainer-{number}")
                work.arrays.append(_submit(site, folder, nodes // _TRAINERS, kind))
            work.nodes = _wait_until_full(site, nodes)
            yield work
            for trainer in site.controller.status().get("trainers", []):
                work.reclaimed += trainer["reclaimed"]
                work.left += trainer["shrank"]
        finally:
            for array in work.arrays:
                site.run("scancel", str(array))
            site.lab.wait_until_idle()


def _made_folder(site: Site, name: str) -> Path:
    folder = site.folder(name=name)
    # The clone itself may lie where Slurm's users cannot read.
    shutil.copy(_HERE / "hostile.sh", folder)
    return folder


def _submit(site: Site, folder: Path, most: int, kind: Kind) -> int:
    script = _SCRIPTS[kind].format(folder=folder)
    return site.submit(script, f"1-{most}", f"--output={folder}/%a.out", cwd=folder)


def _wait_until_full(site: Site, nodes: int) -> int:
    """Wait until so many nodes are used; return how many are.

    The controller leaves nodes alone that it keeps in reserve, and those on which elements are slow
    to end, as hostile ones may be.
    """

    def used() -> int:
        trainers = site.controller.status().get("trainers", [])
        return sum(len(one["nodes"]) for one in trainers)

    with suppress(TimeoutError):
        wait_until(lambda: used() >= nodes, _PATIENCE_S)
    found = used()
    if found == 0:
        words = [f"no trainer runs after {_PATIENCE_S:g} s", *_last_words(site)]
        raise TimeoutError("\n".join(words))
    return found


def _last_words(site: Site) -> list[str]:
    words = [
        f"{path}: {line}"
        for path in sorted(site.lab.home("alice").rglob("*.out"))
        for line in path.read_text(errors="replace").splitlines()[-3:]
    ]
    return words[-12:]
