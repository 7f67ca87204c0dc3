"""The trainers beside the ordinary jobs: their elements sleep, or resist their end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from scripts.benchkit.logs import last_lines
from scripts.labcluster.site import Site
from scripts.labcluster.waiting import wait_until

_HOSTILE = Path(__file__).with_name("hostile.sh")
_PATIENCE_S = 120.0
_WHOLE = (0, 0)  # two trainers, so that they share the nodes

# Elements that sleep use no processor time: all nodes share this host. {0} is the trainer's folder.
SCRIPTS = {
    "polite": "#!/bin/bash\nsrun sleep infinity\n",
    "none": "",  # both sides without trainers: what the bench itself makes of differences
    "hostile": "#!/bin/bash\n. {0}/hostile.sh\nsrun bash -c '. {0}/hostile.sh; sleep infinity'\n",
}


@dataclass
class Work:
    """What trainers did beside the stream."""

    arrays: list[int] = field(default_factory=list)
    parts: dict[str, int] = field(default_factory=dict)  # GPUs of an element, by array; or a node
    elements: int = 0  # when the stream began
    reclaimed: int = 0  # elements whose node Slurm took
    left: int = 0  # elements that the controller ended, mostly for an expected job


@contextmanager
def training(
    site: Site, nodes: int, kind: str, settings: Mapping[str, object], parts: Sequence[int]
) -> Iterator[Work]:
    """Let trainers fill the cluster, and end them afterwards; only then the result is complete.

    The controller has its defaults except for these ``settings``; ``kind`` is one of ``SCRIPTS``.
    With ``parts`` there is a trainer for each, whose elements have so many GPUs.

    Raises:
        TimeoutError: no node is used within two minutes; the message has the trainers' last lines.
    """
    work = Work()
    with site.controlled(settings):
        try:
            for number, gpus in enumerate(parts or _WHOLE) if SCRIPTS[kind] else ():
                folder = site.folder(name=f"trainer-{number}")
                shutil.copy(_HOSTILE, folder)  # Slurm's users may not be able to read the clone
                script = SCRIPTS[kind].format(folder)
                most = nodes if gpus else nodes // len(_WHOLE)
                words = [f"--output={folder}/%a.out", *[f"--gpus-per-node={gpus}"] * bool(gpus)]
                array = site.submit(script, f"1-{most}", *words, cwd=folder)
                work.arrays.append(array)
                if gpus:
                    work.parts[str(array)] = gpus
            if SCRIPTS[kind]:
                work.elements = _wait_until_full(site, nodes * max(1, len(parts)))
            yield work
            for trainer in site.controller.status().get("trainers", []):
                work.reclaimed += trainer["reclaimed"]
                work.left += trainer["shrank"]
        finally:
            for array in work.arrays:
                site.run("scancel", str(array))
            site.lab.wait_until_idle()


def _wait_until_full(site: Site, elements: int) -> int:
    """Wait until so many elements run; return how many do.

    The controller does not use nodes that it keeps in reserve, nor nodes on which elements end
    slowly, as hostile ones may do.
    """

    def used() -> int:
        trainers = site.controller.status().get("trainers", [])
        return sum(len(one["nodes"]) for one in trainers)

    with suppress(TimeoutError):
        wait_until(lambda: used() >= elements, _PATIENCE_S)
    if (found := used()) == 0:
        logs = sorted(site.lab.home("alice").rglob("*.out"))
        words = [f"{log}: {last_lines(log, 3)}" for log in logs[-4:]]
        raise TimeoutError("\n".join([f"no trainer runs after {_PATIENCE_S:g} s", *words]))
    return found
