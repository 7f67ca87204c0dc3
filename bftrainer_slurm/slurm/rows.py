"""One record of slurmctld's job table, and how squeue and bftrainer-look write it.

``records`` puts the records of a job together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

UNREADABLE = "?"


def readable(text: str) -> str:
    """Return a name or comment; ``?`` if its bytes were not text (pyslurm tells no more)."""
    return UNREADABLE if "\ufffd" in text else text


def _given(text: str) -> str:
    return "" if text == "(null)" else text


def _seconds(text: str) -> float | None:
    """Unix seconds; Slurm writes N/A, NONE or Unknown if there is no time."""
    return float(text) if text.isdigit() else None


def _tasks(text: str) -> str | None:
    return None if text in ("N/A", "") else text


def _count(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _status(text: str) -> int | None:
    return int(text) if text else None


def _said(
    letter: str, read: Callable[[str], object] | None = None, default: object = MISSING
) -> Any:
    """Return a field: squeue's format letter for it, if it has one, and how its text is read."""
    # ``default`` may be MISSING, which dataclasses know, but their types do not.
    return field(default=default, metadata={"letter": letter, "read": read})


@dataclass(frozen=True, slots=True)
class JobRow:
    """One record of slurmctld's job table. ``tasks`` is an array expression, of one task or more.

    ``start_s`` of a pending job is when Slurm expects it to start, if it does. ``end_s`` of a
    running job is when its time limit ends it; of an ended job, when it ended.

    The order of the fields is that in which they are asked for, and in which bftrainer-look writes
    them.
    """

    job_id: int = _said("A", int)
    array: int = _said("F", int)
    tasks: str | None = _said("K", _tasks)  # None: not a job array
    state: str = _said("T")
    reason: str = _said("r")
    priority: int = _said("Q", int)  # 0: held
    submit_s: float | None = _said("V", _seconds)
    start_s: float | None = _said("S", _seconds)
    end_s: float | None = _said("e", _seconds)
    nodes: str = _said("N")
    required_nodes: str = _said("n")
    scheduled_nodes: str = _said("Y")
    node_count: int = _said("D", _count)
    partition: str = _said("P")
    user: str = _said("u")
    name: str = _said("j", readable)
    comment: str = _said("k", readable)
    constraint: str = _said("f", _given, "")
    excluded_nodes: str = _said("x", _given, "")
    licenses: str = _said("W", _given, "")
    reservation: str = _said("v", _given, "")
    limit: str = _said("l", default="")  # the time limit, as Slurm writes it
    exit_status: int | None = _said("", _status, None)
    dependency: str = _said("E", _given, "")
    memory: str = _said("m", default="")  # of a node, or of a processor; squeue does not say which
    node_cpus: str = _said("c", default="")  # the least on each node
    cpus: str = _said("C", default="")  # in all: of a running job those that it got
    gres: str = _said("b", default="")
    shared: str = _said("h", default="")  # OK: takes parts of nodes; NO: has them for itself
    tasks_said: str = _said("", default="")  # "yes" where its user said how many tasks
    node_memory: str = _said("", default="")  # got of a node, or asked of each: MB, MB/cpu, MB/gpu


LETTERS = tuple(one.metadata["letter"] for one in fields(JobRow))
_READ = [(at, read) for at, one in enumerate(fields(JobRow)) if (read := one.metadata["read"])]


def row_of(values: Sequence[str]) -> JobRow | str:
    """Read a record as squeue or bftrainer-look writes it; if it is unreadable, say so.

    A bftrainer-look that was upgraded before the controller may write more: that is left out.
    """
    told: list[Any] = list(values)[: len(LETTERS)]
    try:
        for at, read in _READ:
            if at < len(told):
                told[at] = read(told[at])
        return JobRow(*told)
    except (ValueError, TypeError) as error:
        return f"{values[:3]}: {error}"
