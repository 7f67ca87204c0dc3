"""Turns options for the whole job, or for a node, into options for one node: tasks and GPUs.

The rules are those of ``slurm_plugin/per_node.c``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from bftrainer_slurm.slurm.directives import SubmissionError

_NUMBER = re.compile(r"0*[1-9]\d{0,6}\Z", re.ASCII)
_MEMORY = re.compile(r"(\d{1,9})([KMGTkmgt]?[Bb]?)\Z", re.ASCII)
_ALL_MEMORY = re.compile(r"0+[KMGTkmgt]?[Bb]?\Z", re.ASCII)
_ONE_NODE = 1  # without -N a number for the whole job is for one node


@dataclass(frozen=True, slots=True)
class WrittenOptions:
    """The options in the script and on the command line, by their long names."""

    script: Mapping[str, str]
    command: Mapping[str, str]

    @property
    def values(self) -> dict[str, str]:
        """The options that count: the command line wins."""
        return {**self.script, **self.command}


def tasks_and_gpus(written: WrittenOptions) -> list[str]:
    """Return the options for sbatch that give one node its share.

    Raises:
        SubmissionError: a number does not divide by the nodes; the message has the numbers.
    """
    given = written.values
    gpus = _gpus_per_node(written) if "gpus" in given else ""
    if gpus and not {"gpus-per-node", "gpus-per-task"} & given.keys():
        given["gpus-per-node"] = gpus
        options = [f"--gpus-per-node={gpus}"]
    else:
        options = []
    tasks = _tasks_per_node(written, given)
    each = [f"--ntasks-per-node={tasks}"] if tasks else []
    shares = _shares_of_gpus(given, tasks or 1)
    return [*options, *each, f"--ntasks={tasks or 1}", *shares]


def has_part(given: Mapping[str, str]) -> bool:
    """Whether an element has some GPUs of its node, where jobs share nodes; if not, all of it."""
    if {"exclusive", "gpus-per-task"} & given.keys() or _takes_all_memory(given):
        return False
    return "gpus" in given or _gpus_of_node(given) > 0


def part_note(given: Mapping[str, str]) -> str:
    """Return what a user is told of that, after the number of nodes."""
    if has_part(given):
        return ", its GPUs of each; other jobs may have the rest; for whole nodes write --exclusive"
    whole = "; whole ones, since --mem=0 asks for all memory of each"
    return whole if _takes_all_memory(given) else ""


def _takes_all_memory(given: Mapping[str, str]) -> bool:
    """Whether the user asks for all memory of a node: no other job fits beside that."""
    return any(_ALL_MEMORY.match(given.get(name, "")) for name in ("mem", "mem-per-cpu"))


def _shares_of_gpus(given: Mapping[str, str], tasks: int) -> list[str]:
    """Return ``--cpus-per-gpu`` for a task, and ``--mem-per-gpu`` for a node.

    An exclusive element has all GPUs of its node, and Slurm would count the options for all.
    """
    gpus = _gpus_of_node(given) or tasks * _count(given.get("gpus-per-task", ""))
    shares = []
    if "cpus-per-gpu" in given:
        cpus = _number(given["cpus-per-gpu"]) * gpus
        share = f"--cpus-per-task={-(-cpus // tasks)}"
        shares.append(share if cpus else f"--cpus-per-gpu={given['cpus-per-gpu']}")
    if "mem-per-gpu" in given:
        memory = _MEMORY.match(given["mem-per-gpu"])
        share = f"--mem={int(memory[1]) * gpus}{memory[2]}" if memory and gpus else ""
        shares.append(share or f"--mem-per-gpu={given['mem-per-gpu']}")
    return shares


def _gpus_of_node(given: Mapping[str, str]) -> int:
    return _count(given.get("gpus-per-node", "")) or _count(given.get("gres", ""), "gpu")


def _tasks_per_node(written: WrittenOptions, given: Mapping[str, str]) -> int:
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
    if "ntasks-per-gpu" not in given:
        return 0
    return _number(given["ntasks-per-gpu"]) * _gpus_of_node(given)


def _gpus_per_node(written: WrittenOptions) -> str:
    """Return a node's share of a whole job's ``--gpus=a100:8,h100:4``."""
    value = written.values["gpus"]
    asked, shares = f"--gpus={value[:40]}", []
    for part in value.split(","):
        kind, colon, number = part.rpartition(":")
        if not (count := _number(number)):
            raise SubmissionError(f"{asked} is not a number of GPUs; write --gpus-per-node")
        share = _node_share(written, "gpus", count, asked, "--gpus-per-node")
        shares.append(f"{kind}{colon}{share}")
    return ",".join(shares)


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
    here, there = written.script, written.command
    if on_command:
        here, there = there, here
    if "nodes" in here:
        return _one_number(here["nodes"])
    if "nodes" not in there:
        return _ONE_NODE
    return _one_number(there["nodes"]) or (None if on_command else _ONE_NODE)


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
