"""Turns options for the whole job, or for a GPU, into options for one node: tasks, GPUs, memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from bftrainer_slurm.submission.directives import SubmissionError

_NUMBER = re.compile(r"0*[1-9]\d{0,6}\Z", re.ASCII)
_MEMORY = re.compile(r"(\d{1,9})([KMGTkmgt]?[Bb]?)\Z", re.ASCII)
_ALL_MEMORY = re.compile(r"0+[KMGTkmgt?]?[Bb]?\Z", re.ASCII)  # Slurm shows it as 0?
_PARTS = {"cpus-per-task", "mem", "mem-per-cpu"}
_ONE_NODE = 1  # without -N a number for the whole job is for one node


@dataclass(frozen=True)
class WrittenOptions:
    """The options in the script and on the command line, by their long names.

    ``script`` is None if the script came through a pipe and cannot be read again.
    """

    script: Mapping[str, str] | None
    command: Mapping[str, str]

    def get(self, name: str) -> str | None:
        """The value that counts: the command line wins."""
        return self.command.get(name, (self.script or {}).get(name))


@dataclass(frozen=True)
class NodeShare:
    """Options that give one node its share.

    ``settings`` are set and ``dropped`` taken away; ``environment`` is what srun reads in an
    element in their place (None: to be unset).
    """

    settings: dict[str, str] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    environment: dict[str, str | None] = field(default_factory=dict)

    def __add__(self, other: NodeShare) -> NodeShare:
        return NodeShare(
            {**self.settings, **other.settings},
            self.dropped + other.dropped,
            {**self.environment, **other.environment},
        )


def node_share(given: Mapping[str, str], written: WrittenOptions) -> NodeShare:
    """Return what one node has of the options that count.

    Raises:
        SubmissionError: a number does not divide by the nodes; the message has the numbers.
    """
    gpus = _gpus(given, written)
    given = {**given, **gpus.settings}
    tasks = _tasks_per_node(given, written)
    return gpus + _tasks(given, tasks) + _cpus_and_memory(given, tasks or 1)


def has_part(given: Mapping[str, str]) -> bool:
    """Whether an element has some GPUs of its node, where jobs share nodes; if not, all of it."""
    if {"exclusive", "gpus-per-task"} & given.keys() or _takes_all_memory(given):
        return False
    return "gpus" in given or gpus_of_node(given) > 0


def asks_for_cores(given: Mapping[str, str]) -> bool:
    """Whether it asks for some cores or memory of its nodes, and for no GPUs, nor all of them."""
    if {"exclusive", "gpus-per-task"} & given.keys() or _takes_all_memory(given):
        return False
    return bool(_PARTS & given.keys()) and not has_part(given)


def part_note(given: Mapping[str, str]) -> str:
    """Return what a user is told of that, after the number of nodes."""
    if has_part(given):
        return ", its GPUs of each; other jobs may have the rest; for whole nodes write --exclusive"
    whole = "; whole ones, since --mem=0 asks for all memory of each"
    return whole if _takes_all_memory(given) else ""


def gpus_of_node(given: Mapping[str, str]) -> int:
    """How many GPUs a node has by ``--gpus-per-node`` or ``--gres``; 0 if they do not say."""
    return _count(given.get("gpus-per-node", "")) or _count(given.get("gres", ""), "gpu")


def _takes_all_memory(given: Mapping[str, str]) -> bool:
    """Whether the user asks for all memory of a node: no other job fits beside that."""
    return any(_ALL_MEMORY.match(given.get(name, "")) for name in ("mem", "mem-per-cpu"))


def _gpus(given: Mapping[str, str], written: WrittenOptions) -> NodeShare:
    """Return a node's share of a whole job's ``--gpus=a100:8,h100:4``."""
    if "gpus" not in given:
        return NodeShare()
    asked, shares = f"--gpus={given['gpus'][:40]}", []
    for part in given["gpus"].split(","):
        kind, colon, number = part.rpartition(":")
        if not (count := _number(number)):
            raise SubmissionError(f"{asked} is not a number of GPUs; write --gpus-per-node")
        share = _node_share(written, "gpus", count, asked, "--gpus-per-node")
        shares.append(f"{kind}{colon}{share}")
    if {"gpus-per-node", "gpus-per-task"} & given.keys():
        return NodeShare(dropped=("gpus",))
    return NodeShare({"gpus-per-node": ",".join(shares)}, ("gpus",))


def _tasks_per_node(given: Mapping[str, str], written: WrittenOptions) -> int:
    """Return a node's number of tasks, 0 if the options have none."""
    every, each = _number(given.get("ntasks", "")), _number(given.get("ntasks-per-node", ""))
    for name in ("ntasks", "ntasks-per-node"):
        if name in given and not _number(given[name]):
            raise SubmissionError(f"--{name}={given[name][:40]} is not a number of tasks")
    if each:
        return min(every or each, each)
    if every:
        asked = f"--ntasks={every}"
        return _node_share(written, "ntasks", every, asked, "--ntasks-per-node")
    return _number(given.get("ntasks-per-gpu", "")) * gpus_of_node(given)


def _tasks(given: Mapping[str, str], tasks: int) -> NodeShare:
    """Set a node's tasks. For srun in an element sbatch has set those of the whole job."""
    count = str(tasks or 1)
    settings = {"ntasks": count}
    by_gpus = "ntasks-per-gpu" in given
    if tasks and not by_gpus:  # sbatch takes one of them only
        settings["ntasks-per-node"] = count
    names = ("SLURM_NTASKS_PER_NODE", "SLURM_NTASKS", "SLURM_NPROCS")
    environment = dict.fromkeys(names, count) if tasks else {}
    return NodeShare(settings, ("ntasks-per-gpu",) if by_gpus else (), {**environment})


def _cpus_and_memory(given: Mapping[str, str], tasks: int) -> NodeShare:
    """Return ``--cpus-per-gpu`` for a task, and ``--mem-per-gpu`` for a node.

    An exclusive element has all GPUs of its node, and Slurm would count the options for all.
    """
    gpus = gpus_of_node(given) or tasks * _count(given.get("gpus-per-task", ""))
    share = NodeShare()
    if cpus := _number(given.get("cpus-per-gpu", "")) * gpus:
        each = str(-(-cpus // tasks))
        variables = {"SLURM_CPUS_PER_GPU": None, "SLURM_CPUS_PER_TASK": each}
        share += NodeShare({"cpus-per-task": each}, ("cpus-per-gpu",), variables)
    memory = _MEMORY.match(given.get("mem-per-gpu", ""))
    if memory and gpus:
        of_node = f"{int(memory[1]) * gpus}{memory[2]}"
        share += NodeShare({"mem": of_node}, ("mem-per-gpu",), {"SLURM_MEM_PER_GPU": None})
    return share


def _node_share(written: WrittenOptions, name: str, count: int, asked: str, instead: str) -> int:
    """Return one node's share of ``count``, which the option ``asked`` is for all nodes."""
    if count == 1:
        return 1
    nodes = _node_number(written, name)
    if nodes is None:
        raise SubmissionError(
            f"{asked} is for all nodes together, and their number is a range here; write {instead}"
        )
    if count % nodes:
        raise SubmissionError(f"{asked} does not divide by {nodes} nodes; write {instead}")
    return count // nodes


def _node_number(written: WrittenOptions, name: str) -> int | None:
    """Return for how many nodes a whole job's number is, None if that is a range.

    The ``-N`` beside the number counts, in the script or on the command line; without one, the
    other ``-N``. A range on the command line does not count for a number in the script.
    """
    on_command = name in written.command
    script: Mapping[str, str] = written.script or {}
    here, there = (written.command, script) if on_command else (script, written.command)
    if "nodes" in here:
        return _one_number(here["nodes"])
    if "nodes" not in there:
        return _ONE_NODE
    unsure = on_command or written.script is None
    return _one_number(there["nodes"]) or (None if unsure else _ONE_NODE)


def _one_number(nodes: str) -> int | None:
    """Return the number that ``N`` and ``N-N`` stand for, None for a range such as ``2-4``."""
    least, _, most = nodes.partition("-")
    count = _number(least)
    return count if count and count == _number(most or least) else None


def _number(text: str) -> int:
    return int(text) if _NUMBER.match(text) else 0


def _count(gpus: str, prefix: str = "") -> int:
    """Return how many GPUs a list asks for: ``a100:4``, or ``gpu:a100:4`` in --gres."""
    parts = (re.sub(r"^gres[:/]", "", part) for part in gpus.split(",") if part)
    ours = (part for part in parts if not prefix or re.match(rf"{prefix}([:=]|$)", part))
    numbers = (re.split("[:=]", part)[-1] for part in ours)
    return sum(_number(one) or not one.startswith("0") for one in numbers)
