"""One record of slurmctld's job table, and how squeue and bftrainer-look write it.

``records`` puts the records of a job together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

UNREADABLE = "?"


@dataclass(frozen=True, slots=True)
class JobRow:
    """One record of slurmctld's job table. ``tasks`` is an array expression, of one task or more.

    ``start_s`` of a pending job is when Slurm expects it to start, if it does. ``end_s`` of a
    running job is when its time limit ends it; of an ended job, when it ended.
    """

    job_id: int
    array: int
    tasks: str | None  # None: not a job array
    state: str
    reason: str
    priority: int  # 0: held
    submit_s: float | None
    start_s: float | None
    end_s: float | None
    nodes: str
    required_nodes: str
    scheduled_nodes: str
    node_count: int
    partition: str
    user: str
    name: str
    comment: str
    constraint: str = ""
    excluded_nodes: str = ""
    licenses: str = ""
    reservation: str = ""
    limit: str = ""  # the time limit, as Slurm writes it
    exit_status: int | None = None
    dependency: str = ""
    memory: str = ""  # of each node, or of each processor; squeue does not say which
    node_cpus: str = ""  # the least on each node
    cpus: str = ""  # in all: of a running job those that it got
    gres: str = ""
    shared: str = ""  # OK where it takes parts of nodes; NO where it has them for itself
    tasks_said: str = ""  # "yes" where its user said how many tasks; squeue does not tell it


def readable(text: str) -> str:
    """Return a name or comment; ``?`` if its bytes were not text (pyslurm tells no more)."""
    return UNREADABLE if "\ufffd" in text else text


def row_of(values: Sequence[str]) -> JobRow | str:
    """Read a record as squeue or bftrainer-look writes it; if it is unreadable, say so."""
    try:
        return _job_row(*values)
    except (ValueError, TypeError) as error:
        return f"{values[:3]}: {error}"


def _job_row(
    job_id: str,
    array: str,
    tasks: str,
    state: str,
    reason: str,
    priority: str,
    submit: str,
    start: str,
    end: str,
    nodes: str,
    required: str,
    scheduled: str,
    count: str,
    partition: str,
    user: str,
    name: str,
    comment: str,
    constraint: str,
    excluded: str,
    licenses: str,
    reservation: str,
    limit: str,
    exit_status: str = "",  # squeue does not tell it
    dependency: str = "",
    memory: str = "",
    node_cpus: str = "",
    cpus: str = "",
    gres: str = "",
    shared: str = "",
    tasks_said: str = "",
) -> JobRow:
    return JobRow(
        job_id=int(job_id),
        array=int(array),
        tasks=None if tasks in ("N/A", "") else tasks,
        state=state,
        reason=reason,
        priority=int(priority),
        submit_s=_seconds(submit),
        start_s=_seconds(start),
        end_s=_seconds(end),
        nodes=nodes,
        required_nodes=required,
        scheduled_nodes=scheduled,
        node_count=int(count) if count.isdigit() else 0,
        partition=partition,
        user=user,
        name=readable(name),
        comment=readable(comment),
        constraint=_given(constraint),
        excluded_nodes=_given(excluded),
        licenses=_given(licenses),
        reservation=_given(reservation),
        limit=limit,
        exit_status=int(exit_status) if exit_status else None,
        dependency=_given(dependency),
        memory=memory,
        node_cpus=node_cpus,
        cpus=cpus,
        gres=gres,
        shared=shared,
        tasks_said=tasks_said,
    )


def _given(text: str) -> str:
    return "" if text == "(null)" else text


def _seconds(text: str) -> float | None:
    """Unix seconds; Slurm writes N/A, NONE or Unknown if there is no time."""
    return float(text) if text.isdigit() else None
