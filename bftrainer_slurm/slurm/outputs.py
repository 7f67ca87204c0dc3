"""The files that a trainer's elements write to, and their nodes: one request to Slurm."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from bftrainer_slurm.arrays import parse_tasks
from bftrainer_slurm.slurm.run import SlurmRunner

_NO_TASK = "4294967294"  # the value of %a in the record of tasks that have not been split off yet
_MOST = 100_000  # tasks of an array
_RUNNING = ("RUNNING", "COMPLETING")
_OVER = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL")
# Owners can write texts before these fields, so only the last match in a line is Slurm's.
_FILE = r" {}=(?P<path>/.*?)(?= \w+=|\s*$)"
_FILES = (re.compile(_FILE.format("StdOut")), re.compile(_FILE.format("StdErr")))


@dataclass(frozen=True, slots=True)
class Output:
    """One element: its files, and the node on which it runs or ran last.

    ``task`` is None if several elements write to the same file. An element that is ``over`` neither
    runs nor waits.
    """

    task: int | None
    paths: tuple[Path, ...]
    node: str = ""
    over: bool = False


def outputs_of(runner: SlurmRunner, array: int) -> tuple[Output, ...]:
    """Return the files that the elements of a trainer write to.

    Raises:
        SlurmUnavailableError: slurmctld does not answer.
        GatewayError: Slurm knows no such job.
    """
    return outputs_in(runner.read("scontrol", "--oneliner", "show", "job", str(array)))


def outputs_in(text: str) -> tuple[Output, ...]:
    """Read what ``scontrol --oneliner show job`` prints."""
    found = [one for line in text.splitlines() for one in _outputs_of(line)]
    together: dict[tuple[Path, ...], Output] = {}
    for one in found:
        other = together.get(one.paths)
        if other is not None and other.task != one.task:
            one = Output(None, one.paths, over=one.over and other.over)
        together[one.paths] = one
    return tuple(sorted(together.values(), key=lambda one: -1 if one.task is None else one.task))


def _outputs_of(line: str) -> list[Output]:
    tasks = re.search(r"ArrayTaskId=(\S+)", line)
    state = re.search(r" JobState=(\w+)", line)
    if tasks is None or state is None:
        return []
    paths = [matches[-1]["path"] for pattern in _FILES if (matches := [*pattern.finditer(line)])]
    running, over = state[1] in _RUNNING, state[1] in _OVER
    node = re.search(r" NodeList=([\w.-]+)", line)
    return [
        Output(
            task,
            tuple(dict.fromkeys(Path(path.replace(_NO_TASK, str(task))) for path in paths)),
            node[1] if node and (running or over) else "",
            over,
        )
        for task in sorted(_tasks(tasks[1]))
    ]


def _tasks(text: str) -> tuple[int, ...]:
    try:
        return parse_tasks(text, below=_MOST)
    except ValueError:
        return ()
