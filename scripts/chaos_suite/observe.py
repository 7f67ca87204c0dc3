"""One look at everything: the queue, the status, the processes and the trainers' own logs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.chaos_suite.training import Generation


@dataclass(frozen=True, slots=True)
class Element:
    """An element, or what is left of an array, as squeue shows it."""

    array: int
    task: str
    state: str
    reason: str
    node: str


@dataclass(frozen=True, slots=True)
class Process:
    """A process of an element, which Slurm knows as ``job``."""

    pid: int
    name: str  # NODE.PID, the id as the node itself has it
    job: str
    array: int
    task: str
    node: str
    life: str  # how often Slurm has restarted its element


@dataclass(frozen=True, slots=True)
class Trainer:
    """A trainer that is to train, and what its logs say now; ``generations`` are in order."""

    array: int
    name: str
    max_nodes: int
    generations: Sequence[Generation] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was seen at ``time_s`` of CLOCK_MONOTONIC; ``elements`` None: Slurm did not answer."""

    time_s: float
    elements: tuple[Element, ...] | None
    nodes: Mapping[str, str]  # Slurm's word for the state of each
    status: Mapping[str, Any]
    processes: tuple[Process, ...]
    trainers: tuple[Trainer, ...]
    over: frozenset[int] = frozenset()  # arrays that are cancelled, or finished
    problems: tuple[str, ...] = field(default=())  # what has become of ordinary jobs
    apart: frozenset[str] = frozenset()  # nodes that are cut off, or were a moment ago

    def published(self, array: int) -> Mapping[str, Any]:
        """Return what the controller says of a trainer."""
        for one in self.status.get("trainers", ()):
            if one["array"] == array:
                found: Mapping[str, Any] = one
                return found
        return {}

    def running(self, array: int) -> list[Element]:
        """Return the elements of a trainer that run."""
        return [one for one in self.elements or () if one.array == array and one.state == "RUNNING"]


def read_elements(text: str) -> tuple[Element, ...]:
    """Read squeue's lines of ``%F|%K|%T|%r|%N|%P``, those in the trainers' partition."""
    found = []
    for line in text.splitlines():
        array, task, state, reason, node, partition = line.split("|")
        if partition == "bftrainer":
            found.append(Element(int(array), task, state, reason, node))
    return tuple(found)


def element_processes(conf: str) -> tuple[Process, ...]:
    """Return all processes of elements of the cluster with this slurm.conf; needs root."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            words = (folder / "environ").read_bytes().split(b"\0")
            name = (folder / "comm").read_text().strip()
            (inner,) = re.findall(r"^NSpid:.*\t(\d+)$", (folder / "status").read_text(), re.M)
        except OSError:
            continue
        variables = dict(word.decode(errors="replace").partition("=")[::2] for word in words)
        array = variables.get("SLURM_ARRAY_JOB_ID", "")
        if variables.get("SLURM_CONF") != conf or not array.isdecimal() or name == "slurmstepd":
            continue
        node = variables.get("SLURMD_NODENAME", "")
        found.append(
            Process(
                int(folder.name),
                f"{node}.{inner}",
                variables.get("SLURM_JOB_ID", ""),
                int(array),
                variables.get("SLURM_ARRAY_TASK_ID", ""),
                node,
                variables.get("SLURM_RESTART_COUNT", "0"),
            )
        )
    return tuple(found)
