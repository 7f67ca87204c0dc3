"""What one look at everything shows: the queue, the nodes, the processes, the trainers' own logs.

``world`` looks; here is what was seen, and how it is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.labcluster.processes import environments
from tests.chaos.trainers import Trainer

QUEUE = ("squeue", "-a", "-h", "-r", "-t", "all", "-o", "%F|%K|%T|%r|%N|%S|%P|%A")
_UNHEARD = re.compile(r"\[(\d+\.\w+)\] error: Rank \d+ failed sending step completion message")
_GIVEN_UP = re.compile(r"\[(\d+\.\w+)\] error: \*\*\* .*DUE TO JOB NOT ENDING WITH SIGNALS")


@dataclass(frozen=True, slots=True)
class Element:
    """An element, or what is left of an array, as squeue shows it."""

    array: int
    task: str
    state: str
    reason: str
    node: str
    start: str = ""

    def __str__(self) -> str:
        return f"{self.array}_{self.task}"


@dataclass(frozen=True, slots=True)
class Process:
    """A process of an element."""

    pid: int
    name: str  # NODE.PID, the id as the node itself has it
    array: int
    task: str
    node: str
    life: str  # how often Slurm has restarted its element
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was seen at ``time_s`` of CLOCK_MONOTONIC; no ``elements``: Slurm did not answer."""

    time_s: float
    elements: tuple[Element, ...] | None
    nodes: Mapping[str, str]  # Slurm's word for the state of each
    status: Mapping[str, Any]
    processes: tuple[Process, ...]
    trainers: tuple[Trainer, ...]  # those that are to train
    problems: tuple[str, ...] = ()  # ordinary jobs that did not run as they should
    apart: frozenset[str] = frozenset()  # nodes that are cut off, or were a moment ago

    def published(self, array: int) -> Mapping[str, Any]:
        """Return what the controller says of a trainer."""
        every: Sequence[Mapping[str, Any]] = self.status.get("trainers", ())
        return next((one for one in every if one["array"] == array), {})

    def of(self, array: int) -> list[Element]:
        """Return the elements of a trainer."""
        return [one for one in self.elements or () if one.array == array]

    def running(self, array: int) -> list[Element]:
        """Return the elements of a trainer that run."""
        return [one for one in self.of(array) if one.state == "RUNNING"]

    def mine(self, state: str = "RUNNING") -> list[Element]:
        """Return the elements in this state of all trainers that are to train, by their nodes."""
        found = [one for trainer in self.trainers for one in self.of(trainer.array)]
        found = [one for one in found if one.state == state]
        return sorted(found, key=lambda one: (one.node, one.array, one.task))

    def processes_of(self, element: Element) -> list[Process]:
        """Return the processes of an element."""
        place = (element.array, element.task, element.node)
        return [one for one in self.processes if (one.array, one.task, one.node) == place]

    def workers(self, element: Element) -> list[Process]:
        """Return the processes of an element that make steps, as their logs say."""
        made = [one.training.newest for one in self.trainers if one.array == element.array]
        places = {place for newest in made if newest is not None for place in newest.places}
        return [one for one in self.processes_of(element) if one.name in places]


def read_queue(text: str) -> tuple[tuple[Element, ...], dict[int, str]]:
    """Return the elements in what ``QUEUE`` says, and by job id the states of ordinary jobs."""
    elements, ordinary = [], {}
    for line in text.splitlines():
        array, *fields, partition, job = line.split("|")
        if partition == "bftrainer":
            elements.append(Element(int(array), *fields))
        else:
            ordinary[int(job)] = fields[1]
    return tuple(elements), ordinary


def element_processes(conf: str) -> tuple[Process, ...]:
    """Return all processes of elements of the cluster with this slurm.conf, by id; needs root."""
    found = []
    for pid, variables in sorted(environments(), key=lambda one: one[0]):
        array, node = variables.get("SLURM_ARRAY_JOB_ID", ""), variables.get("SLURMD_NODENAME", "")
        if variables.get("SLURM_CONF") != conf or not array.isdecimal():
            continue
        folder = Path(f"/proc/{pid}")
        try:
            name = (folder / "comm").read_text().strip()
            (inner,) = re.findall(r"^NSpid:.*\t(\d+)$", (folder / "status").read_text(), re.M)
            command = (folder / "cmdline").read_text(errors="replace").split("\0")[:-1]
        except OSError:
            continue
        if name == "slurmstepd":
            continue
        life = variables.get("SLURM_RESTART_COUNT", "0")
        place = (int(array), variables.get("SLURM_ARRAY_TASK_ID", ""), node, life)
        found.append(Process(pid, f"{node}.{inner}", *place, tuple(command)))
    return tuple(found)


def drained_by_slurm(reason: str, log: str) -> bool:
    """Return whether a node was drained for this reason by a fault of Slurm's own.

    ``log`` is that of its slurmd. "Duplicate jobid": slurmctld was killed before it had saved that
    it started a job, and starts it once more. "Kill task failed": all of a step has ended, but its
    slurmstepd could not tell slurmctld, and sleeps for a minute before it tries again. If it is
    told to end the step meanwhile it counts UnkillableStepTimeout anew, with nobody to stop that
    (22.05 and 24.11; step_terminate_monitor.c). Where a step was given up that had not yet tried
    to report its end, some of its processes were really left, and this is no fault of Slurm's.
    """
    if reason == "Duplicate jobid":
        return True
    unheard: set[str] = set()
    given_up: dict[str, bool] = {}  # by step: whether it had ended
    for line in log.splitlines():
        if match := _UNHEARD.search(line):
            unheard.add(match[1])
        elif match := _GIVEN_UP.search(line):
            given_up[match[1]] = match[1] in unheard
    return reason.startswith("Kill task failed") and bool(given_up) and all(given_up.values())
