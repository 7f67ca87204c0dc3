"""What one look at everything shows: the queue, the nodes, the processes, the trainers' own logs.

``world`` looks; here is what was seen, and how it is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bftrainer_slurm.elastic.processes import processes_with
from bftrainer_slurm.slurm.nodelists import expand
from tests.chaos.trainers import Trainer

QUEUE = ("squeue", "-a", "-h", "-r", "-t", "all", "-o", "%F|%K|%T|%r|%N|%S|%P|%A")
BOOKS = ("scontrol", "-a", "-d", "-o", "show", "job")
_PART = re.compile(r" Nodes=(\S+) CPU_IDs=(\S*) Mem=(\d+) GRES=(\S*)")
_UNHEARD = re.compile(r"\[(\d+\.\w+)\] error: Rank \d+ failed sending step completion message")
_GIVEN_UP = re.compile(r"\[(\d+\.\w+)\] error: \*\*\* .*DUE TO JOB NOT ENDING WITH SIGNALS")


@dataclass(frozen=True, slots=True)
class Element:
    """An element, or what is left of an array, or an ordinary job, as squeue shows it."""

    array: int
    task: str
    state: str
    reason: str
    node: str
    start: str = ""

    def __str__(self) -> str:
        return f"{self.array}_{self.task}"


@dataclass(frozen=True, slots=True)
class Part:
    """What a running job has of a node, as Slurm has it in its books."""

    job: int
    node: str
    things: tuple[str, ...]  # cores and GPUs by their numbers: core0, gpu3
    memory_mb: int


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
    # Trainers that the last faults left alone, and their failures in a row before.
    spared: Mapping[int, int] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    memory_mb: int = 0  # of a node that jobs share; 0: they have whole nodes

    def published(self, array: int) -> Mapping[str, Any]:
        """Return what the controller says of a trainer."""
        every: Sequence[Mapping[str, Any]] = self.status.get("trainers", ())
        return next((one for one in every if one["array"] == array), {})

    def failures(self, array: int) -> int:
        """Return how often in a row a trainer has failed, as the controller says."""
        return int(self.published(array).get("failures", 0))

    def of(self, array: int) -> list[Element]:
        return [one for one in self.elements or () if one.array == array]

    def running(self, array: int) -> list[Element]:
        return [one for one in self.of(array) if one.state == "RUNNING"]

    def mine(self, state: str = "RUNNING") -> list[Element]:
        """Return the elements in this state of all trainers that are to train, by their nodes."""
        arrays = {one.array for one in self.trainers}
        found = [one for one in self.elements or () if one.array in arrays and one.state == state]
        return sorted(found, key=lambda one: (one.node, one.array, one.task))

    def processes_of(self, element: Element) -> list[Process]:
        place = (element.array, element.task, element.node)
        return [one for one in self.processes if (one.array, one.task, one.node) == place]

    def workers(self, element: Element) -> list[Process]:
        """Return the processes of an element that make steps, as their logs say."""
        made = [one.training.newest for one in self.trainers if one.array == element.array]
        places = {place for newest in made if newest is not None for place in newest.places}
        return [one for one in self.processes_of(element) if one.name in places]


def read_queue(text: str) -> tuple[tuple[Element, ...], dict[int, Element]]:
    """Return the elements in what ``QUEUE`` says, and the ordinary jobs by their ids."""
    elements, ordinary = [], {}
    for line in text.splitlines():
        array, *fields, partition, job = line.split("|")
        one = Element(int(array), *fields)
        if partition == "bftrainer":
            elements.append(one)
        else:
            ordinary[int(job)] = one
    return tuple(elements), ordinary


def read_books(text: str) -> tuple[Part, ...]:
    """Return what running jobs have of nodes, in what ``BOOKS`` says."""
    found = []
    for line in text.splitlines():
        if " JobState=RUNNING " not in line:
            continue
        job = int(line.partition("JobId=")[2].split()[0])
        for nodes, cores, memory_mb, gres in _PART.findall(line):
            numbers = gres.partition("(IDX:")[2].partition(")")[0]
            listed = [f"core[{cores}]"] * bool(cores) + [f"gpu[{numbers}]"] * bool(numbers)
            things = tuple(thing for one in listed for thing in expand(one))
            found += [Part(job, node, things, int(memory_mb)) for node in expand(nodes)]
    return tuple(found)


def element_processes(conf: str) -> tuple[Process, ...]:
    """Return all processes of elements of the cluster with this slurm.conf, by id; needs root."""
    found = []
    for pid in sorted(processes_with(f"SLURM_CONF={conf}")):
        folder = Path(f"/proc/{pid}")
        try:
            words = (folder / "environ").read_text(errors="replace").split("\0")
            name = (folder / "comm").read_text().strip()
            (inner,) = re.findall(r"^NSpid:.*\t(\d+)$", (folder / "status").read_text(), re.M)
            command = (folder / "cmdline").read_text(errors="replace").split("\0")[:-1]
        except OSError:
            continue
        variables = dict(word.partition("=")[::2] for word in words)
        array, node = variables.get("SLURM_ARRAY_JOB_ID", ""), variables.get("SLURMD_NODENAME", "")
        if name == "slurmstepd" or not array.isdecimal():
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
    unheard, given_up = set[str](), list[bool]()  # of each step given up: whether it had ended
    for line in log.splitlines():
        if match := _UNHEARD.search(line):
            unheard.add(match[1])
        elif match := _GIVEN_UP.search(line):
            given_up.append(match[1] in unheard)
    ended = bool(given_up) and all(given_up)
    return reason == "Duplicate jobid" or (reason.startswith("Kill task failed") and ended)
