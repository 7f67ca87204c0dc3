"""A user's ``--array``: each of its tasks becomes a trainer, which is an array itself.

The user's script sees the variables of its own task, not those of the element.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from bftrainer_slurm.arrays import task_ranges
from bftrainer_slurm.submission.directives import SubmissionError

MOST_TASKS = 100
_FILES = ("input", "output", "error")
_STEP = re.compile(r"\d+-\d+:(\d+)(?:%\d+)?\Z", re.ASCII)
_TASK = re.compile(r"%%|%(\d?)a")


@dataclass(frozen=True)
class UserArray:
    """The tasks of ``--array``, in order; ``throttle`` is the text after a ``%``."""

    tasks: tuple[int, ...]
    step: int = 1
    throttle: str = ""

    def environment(self, task: int) -> dict[str, str]:
        """Return the variables that Slurm would set for this task's script."""
        return {
            "SLURM_ARRAY_TASK_ID": str(task),
            "SLURM_ARRAY_TASK_COUNT": str(len(self.tasks)),
            "SLURM_ARRAY_TASK_MIN": str(min(self.tasks)),
            "SLURM_ARRAY_TASK_MAX": str(max(self.tasks)),
            "SLURM_ARRAY_TASK_STEP": str(self.step),
        }


def read_array(text: str) -> UserArray:
    """Read the value of ``--array``.

    Raises:
        SubmissionError: the value is wrong; the message has the remedy.
    """
    try:
        ranges = task_ranges(text)
    except ValueError as error:
        raise SubmissionError(f"--array: {error}; write for example --array=0-9") from error
    few = sum(map(len, ranges)) <= MOST_TASKS
    tasks = tuple(sorted(set(chain.from_iterable(ranges)))) if few else ()
    if not tasks:
        raise SubmissionError(
            f"--array={text[:40]}: from 1 to {MOST_TASKS} tasks can be submitted at once, each a "
            f"trainer; write for example --array=0-{MOST_TASKS - 1}"
        )
    step = _STEP.match(text)
    return UserArray(tasks, int(step[1]) if step else 1, text.partition("%")[2])


def only_task(text: str) -> int | None:
    """Return the task of an ``--array`` with one task, else None."""
    tasks = read_array(text).tasks if text else ()
    return tasks[0] if len(tasks) == 1 else None


def files_of_task(given: Mapping[str, str], task: int) -> dict[str, str]:
    """Return the options that name the task's files, with its number for ``%a``.

    Slurm would put the element's number there, and all trainers would share their files.
    """

    def replaced(match: re.Match[str]) -> str:
        return match[0] if match[0] == "%%" else f"{task:0{match[1] or 1}}"

    files = {name: _TASK.sub(replaced, given[name]) for name in _FILES if name in given}
    return {name: file for name, file in files.items() if file != given[name]}
