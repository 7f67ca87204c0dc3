"""What a script asks for its whole job, or a node, as what one node has: tasks and GPUs.

The same rules as ``slurm_plugin/per_node.c``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bftrainer_slurm.slurm.directives import SubmissionError

_NUMBER = re.compile(r"0*[1-9]\d{0,6}\Z", re.ASCII)
_MEMORY = re.compile(r"(\d{1,9})([KMGTkmgt]?[Bb]?)\Z", re.ASCII)
_ONE_NODE = 1  # what counts for the whole job was meant for one


@dataclass(frozen=True, slots=True)
class Written:
    """The options by their long names: of the script, and of the command line, which wins."""

    script: Mapping[str, str]
    command: Mapping[str, str]

    @property
    def values(self) -> dict[str, str]:
        """Those that count."""
        return {**self.script, **self.command}


# What contradicts ``gpus=``, where the plan chooses how many GPUs of a node an element has.
_OF_GPUS = (
    *("gpus", "gpus-per-node", "gpus-per-task", "gres"),
    "exclusive",
    "ntasks-per-gpu",
    "cpus-per-task",
)


def tasks_and_gpus(written: Written, choices: Sequence[int] = ()) -> list[str]:
    """Return the options for sbatch that give one node its share.

    Args:
        choices: how many GPUs it may have, where the plan chooses.

    Raises:
        SubmissionError: it does not divide; in one line, with the numbers.
    """
    given = written.values
    if name := next((name for name in _OF_GPUS if choices and name in given), None):
        raise SubmissionError(
            f"gpus= says how many GPUs of a node the trainer may have; leave --{name} out"
        )
    gpus = _gpus(written) if "gpus" in given else ""
    if gpus and not {"gpus-per-node", "gpus-per-task"} & given.keys():
        given["gpus-per-node"] = gpus
        options = [f"--gpus-per-node={gpus}"]
    else:
        options = []
    tasks = _tasks(written, given)
    each = [f"--ntasks-per-node={tasks}"] if tasks else []
    if choices and tasks > 1:
        raise SubmissionError(
            "gpus= needs one task a node, which starts a process for each GPU as torchrun does; "
            "leave --ntasks and --ntasks-per-node out"
        )
    if choices:  # the controller asks for the cores of more GPUs, and Slurm counts their memory
        if not (cpus := _number(given.get("cpus-per-gpu", ""))):
            raise SubmissionError(
                "gpus= needs --cpus-per-gpu, how many cores go with each GPU; write for example "
                "--cpus-per-gpu=8"
            )
        memory = [f"--mem-per-gpu={given['mem-per-gpu']}"] if "mem-per-gpu" in given else []
        cores = f"--cpus-per-task={cpus * choices[0]}"
        return [f"--gres=gpu:{choices[0]}", cores, *memory, *each, "--ntasks=1"]
    shares = _shares_of_gpus(given, tasks or 1)
    return [*options, *each, f"--ntasks={tasks or 1}", *shares]


def takes_part(given: Mapping[str, str]) -> bool:
    """Whether elements have their GPUs or cores of a node, where the site lets jobs share nodes."""
    if {"exclusive", "gpus-per-task"} & given.keys():
        return False
    asked = {"gpus-per-node", "gpus", "cpus-per-task"} & given.keys()
    return bool(asked or _count(given.get("gres", ""), "gpu"))


def _shares_of_gpus(given: Mapping[str, str], tasks: int) -> list[str]:
    """``--cpus-per-gpu`` as a task's and ``--mem-per-gpu`` as a node's.

    Slurm would count them for all GPUs of the node, as an element has them all: it is exclusive.
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


def _tasks(written: Written, given: Mapping[str, str]) -> int:
    """A node's number of tasks, 0 if none is said."""
    every, each = _number(given.get("ntasks", "")), _number(given.get("ntasks-per-node", ""))
    for name in ("ntasks", "ntasks-per-node"):
        if name in given and not _number(given[name]):
            raise SubmissionError(f"--{name}={given[name][:40]} is not a number of tasks")
    if each:
        return min(every or each, each)
    if every:
        said = f"--ntasks={every}"
        return _divided(written, "ntasks", every, said, "--ntasks-per-node")
    if "ntasks-per-gpu" not in given:
        return 0
    return _number(given["ntasks-per-gpu"]) * _gpus_of_node(given)


def _gpus(written: Written) -> str:
    """``--gpus=a100:8,h100:4`` of the whole job as a node's list."""
    value = written.values["gpus"]
    said, shares = f"--gpus={value[:40]}", []
    for part in value.split(","):
        kind, colon, number = part.rpartition(":")
        if not (count := _number(number)):
            raise SubmissionError(f"{said} is not a number of GPUs; write --gpus-per-node")
        share = _divided(written, "gpus", count, said, "--gpus-per-node")
        shares.append(f"{kind}{colon}{share}")
    return ",".join(shares)


def _divided(written: Written, name: str, count: int, said: str, instead: str) -> int:
    """One node's share of ``count``, which ``said`` asks for all nodes together."""
    if count == 1:
        return 1
    nodes = _nodes(written, name)
    if nodes is None:
        raise SubmissionError(
            f"{said} is for all nodes together, and their number is a range here; write {instead}"
        )
    if count % nodes:
        raise SubmissionError(f"{said} does not divide by {nodes} nodes; write {instead}")
    return count // nodes


def _nodes(written: Written, name: str) -> int | None:
    """For how many nodes a number of the whole job is, None if that is not one number.

    For those of the place where it stands, or else for those of the other place. A range on the
    command line says nothing of a script without a number.
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
    """``N`` and ``N-N`` are one number, ``2-4`` is not."""
    least, _, most = nodes.partition("-")
    count = _number(least)
    return count if count and count == _number(most or least) else None


def _number(text: str) -> int:
    return int(text) if _NUMBER.match(text) else 0


def _count(gpus: str, prefix: str = "") -> int:
    """How many a list like ``a100:4`` or, of --gres, ``gpu:a100:4`` asks for."""
    parts = (re.sub(r"^gres[:/]", "", part) for part in gpus.split(",") if part)
    ours = (part for part in parts if part.startswith(prefix))
    return sum(_number(part.rpartition(":")[2]) or 1 for part in ours)
