"""Reads logs in the Standard Workload Format, version 2.2 (Parallel Workloads Archive).

Header comments describe the machine. Then comes one line for each job: 18 numbers, -1 for unknown.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
from pyarrow import compute

from bftrainer_slurm.replay.logs.columns import Rows, first_of, rows_of
from bftrainer_slurm.replay.logs.jobs import JobTable, Notes, faults, keys_of
from bftrainer_slurm.replay.logs.lines import Lines

_FIELDS = 18
_NAMES = {"id": 0, "submit": 1, "wait": 2, "run": 3, "had": 4, "asked": 7}
_NO_WAIT = "it ran, but its wait (field 3) is unknown, and so is when it started"
_COMMENT = re.compile(r";\s*(MaxNodes|MaxProcs|UnixStartTime)\s*:\s*(\d{1,12})\b", re.IGNORECASE)


@dataclass(slots=True)
class Machine:
    """What the header says about the machine; 0 if it does not say."""

    maxnodes: int = 0
    maxprocs: int = 0
    unixstarttime: int = 0

    @property
    def processors_per_node(self) -> int:
        """Processors per node, rounded up; 1 if the header does not say."""
        return -(-self.maxprocs // self.maxnodes) if self.maxnodes and self.maxprocs else 1

    @property
    def nodes(self) -> int:
        """Nodes of the machine; if only processors are known, each counts as a node."""
        return self.maxnodes or self.maxprocs


def is_swf(line: str) -> bool:
    """Whether a log's first line is one of this format."""
    return line.startswith(";") or len(line.split()) == _FIELDS


def read_swf(lines: Lines, notes: Notes, machine: Machine) -> JobTable:
    """Return every job that ran; ``machine`` is filled in from the header on the way.

    A job without allocated processors (field 5) counts with those it asked for (field 8), and
    takes whole nodes. The line of one that ran after an unknown wait cannot be read: it had nodes,
    but nobody can say when.
    """
    split = compute.utf8_split_whitespace
    batches = rows_of(_rows(lines, machine), split, _FIELDS, _NAMES, notes)
    return JobTable.joined(_jobs(rows, notes, machine) for rows in batches)


def _rows(lines: Lines, machine: Machine) -> Lines:
    """Yield the lines without comments, which describe the machine."""
    for number, line in lines:
        if not line.startswith(";"):
            yield number, line
        elif found := _COMMENT.match(line):
            setattr(machine, found[1].lower(), int(found[2]))


def _jobs(rows: Rows, notes: Notes, machine: Machine) -> JobTable:
    read = [rows.numbers(name, _finite) for name in ("submit", "wait", "run", "had", "asked")]
    good = rows.readable(first_of(*(why for _, why in read)), notes)
    submit_s, wait_s, run_s, had, asked = (values[good] for values, _ in read)
    rows = rows.only(good)
    processors = np.trunc(np.where(had >= 1, had, asked))
    eligible_s = machine.unixstarttime + submit_s
    start_s = eligible_s + wait_s
    notes.last_submit_s = max(notes.last_submit_s, float(eligible_s.max(initial=-math.inf)))
    ran = (run_s > 0) & (processors > 0)
    notes.never_ran += int((~ran).sum())
    jobs = JobTable.made(
        line=rows.line,
        key=keys_of(rows.texts("id"), start_s),
        start_s=start_s,
        end_s=start_s + run_s,
        nodes=np.ceil(processors / machine.processors_per_node),
        eligible_s=eligible_s,
    )
    why = np.where(wait_s < 0, _NO_WAIT, faults(jobs))
    return jobs.rows(ran & rows.readable(np.where(ran, why, "").astype(object), notes))


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:30]!r} is not finite")
    return number
