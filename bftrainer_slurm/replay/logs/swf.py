"""Reads logs in the Standard Workload Format, version 2.2 (Parallel Workloads Archive).

Header comments describe the machine; then a job a line, 18 numbers, -1 for unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from bftrainer_slurm.replay.logs.jobs import Job, Notes, checked
from bftrainer_slurm.replay.logs.lines import Lines

_FIELDS = 18
_COMMENT = re.compile(r";\s*(MaxNodes|MaxProcs|UnixStartTime)\s*:\s*(\d{1,12})\b", re.IGNORECASE)


@dataclass(slots=True)
class Machine:
    """What the header says of the machine; 0 where it does not say."""

    maxnodes: int = 0
    maxprocs: int = 0
    unixstarttime: int = 0

    @property
    def processors_per_node(self) -> int:
        """Processors a node, rounded up; 1 where the header does not say."""
        return -(-self.maxprocs // self.maxnodes) if self.maxnodes and self.maxprocs else 1

    @property
    def nodes(self) -> int:
        """Nodes of the machine; where only processors are known, each counts as a node."""
        return self.maxnodes or self.maxprocs


def is_swf(line: str) -> bool:
    """Whether a log's first line is one of this format."""
    return line.startswith(";") or len(line.split()) == _FIELDS


def read_swf(lines: Lines, notes: Notes, machine: Machine) -> Iterator[Job]:
    """Yield every job that ran; ``machine`` is filled in from the header on the way.

    A job without allocated processors (field 5) counts with those it asked for (field 8), and
    takes whole nodes.
    """
    for number, line in lines:
        if line.startswith(";"):
            if found := _COMMENT.match(line):
                setattr(machine, found[1].lower(), int(found[2]))
            continue
        try:
            job = _job(number, line.split(), notes, machine)
        except (ValueError, OverflowError) as error:
            notes.skip(number, line, str(error))
            continue
        if job is not None:
            yield job


def _job(line: int, fields: list[str], notes: Notes, machine: Machine) -> Job | None:
    if len(fields) != _FIELDS:
        raise ValueError(f"it has {len(fields)} fields, not {_FIELDS}")
    submit_s, wait_s, run_s = (float(text) for text in fields[1:4])
    if not all(map(math.isfinite, (submit_s, wait_s, run_s))):
        raise ValueError("a time is not finite")
    allocated, requested = int(float(fields[4])), int(float(fields[7]))
    processors = allocated if allocated > 0 else requested
    notes.last_submit_s = max(notes.last_submit_s, machine.unixstarttime + submit_s)
    if run_s <= 0 or wait_s < 0 or processors <= 0:
        notes.never_ran += 1
        return None
    start_s = machine.unixstarttime + submit_s + wait_s
    return checked(
        Job(
            line=line,
            key=hash((fields[0], start_s)),
            start_s=start_s,
            end_s=start_s + run_s,
            nodes=-(-processors // machine.processors_per_node),
            cpus=processors,
            node_list="",
            eligible_s=machine.unixstarttime + submit_s,
        )
    )
