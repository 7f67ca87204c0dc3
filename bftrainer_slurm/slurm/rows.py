"""One record of slurmctld's job table, as squeue and bftrainer-look write it.

``records`` makes the queue from all records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

UNREADABLE = "?"


def readable(text: str) -> str:
    """Return a name or comment; ``?`` if its bytes were no text (pyslurm shows nothing then)."""
    return UNREADABLE if "\ufffd" in text else text


def _text(text: str) -> str:
    return "" if text == "(null)" else text


def _seconds(text: str) -> float | None:
    """Read Unix seconds; Slurm writes N/A, NONE or Unknown if there is no time."""
    return float(text) if text.isdigit() else None


def _tasks(text: str) -> str | None:
    return None if text in ("N/A", "") else text


def _count(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _status(text: str) -> int | None:
    return int(text) if text else None


def _column(
    letter: str, read: Callable[[str], object] | None = None, default: object = MISSING
) -> Any:
    """Return a field with squeue's format letter, if it has one, and the reader of its text."""
    # ``default`` may be MISSING, which dataclasses know, but their types do not.
    return field(default=default, metadata={"letter": letter, "read": read})


@dataclass(frozen=True, slots=True)
class JobRow:
    """One record of slurmctld's job table. ``tasks`` is an array expression, of one task or more.

    ``start_s`` of a pending job is its expected start, if Slurm has one. ``end_s`` of a running job
    is when its time limit ends it; of an ended job, when it ended.

    squeue is asked for the fields in this order, and bftrainer-look writes them in it.
    """

    job_id: int = _column("A", int)
    array: int = _column("F", int)
    tasks: str | None = _column("K", _tasks)  # None: not a job array
    state: str = _column("T")
    reason: str = _column("r")
    priority: int = _column("Q", int)  # 0: held
    submit_s: float | None = _column("V", _seconds)
    start_s: float | None = _column("S", _seconds)
    end_s: float | None = _column("e", _seconds)
    nodes: str = _column("N")
    required_nodes: str = _column("n")
    scheduled_nodes: str = _column("Y")
    node_count: int = _column("D", _count)
    partition: str = _column("P")
    user: str = _column("u")
    name: str = _column("j", readable)
    comment: str = _column("k", readable)
    constraint: str = _column("f", _text, "")
    excluded_nodes: str = _column("x", _text, "")
    licenses: str = _column("W", _text, "")
    reservation: str = _column("v", _text, "")
    limit: str = _column("l", default="")  # the time limit, as Slurm writes it
    exit_status: int | None = _column("", _status, None)
    dependency: str = _column("E", _text, "")
    memory: str = _column("m", default="")  # for a node or a processor; squeue does not say which
    node_cpus: str = _column("c", default="")  # the least on each node
    cpus: str = _column("C", default="")  # in all; if it runs, those that it got
    gres: str = _column("b", default="")
    shared: str = _column("h", default="")  # OK: parts of nodes; NO: whole nodes
    tasks_said: str = _column("", default="")  # "yes" if its user gave the number of tasks
    node_memory: str = _column("", default="")  # got or asked of each node: MB, MB/cpu, MB/gpu
    given: str = _column("", default="")  # what its user gave: "c" processors, "m" memory; "": ?
    qos: str = _column("q", _text, "")
    gres_often: str = _column("", default="")  # "8/2": ``gres`` is for each of 8 tasks on 2 nodes
    cpus_per_gpu: str = _column("", default="")

    @property
    def default_cpus(self) -> bool:
        """Whether Slurm's default for processors counts; squeue does not say, so one counts."""
        return "c" not in self.given if self.given else self.node_cpus in ("", "0", "1")


LETTERS = tuple(one.metadata["letter"] for one in fields(JobRow))
_READ = [(at, read) for at, one in enumerate(fields(JobRow)) if (read := one.metadata["read"])]


def row_of(values: Sequence[str]) -> JobRow | str:
    """Read a record of squeue or bftrainer-look; return a text that says why if that fails.

    A bftrainer-look that is newer than the controller may write more fields, which are ignored.
    """
    texts: list[Any] = list(values)[: len(LETTERS)]
    try:
        for at, read in _READ:
            if at < len(texts):
                texts[at] = read(texts[at])
        return JobRow(*texts)
    except (ValueError, TypeError) as error:
        return f"{values[:3]}: {error}"
