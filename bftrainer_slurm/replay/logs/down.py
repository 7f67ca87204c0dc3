"""Reads when nodes were down or drained, as ``sacctmgr show event`` prints it."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from datetime import tzinfo
from pathlib import Path
from typing import NamedTuple

from bftrainer_slurm.replay.logs.jobs import LogError
from bftrainer_slurm.replay.logs.lines import read_lines
from bftrainer_slurm.replay.logs.nodes import expand
from bftrainer_slurm.replay.logs.sacct import columns_of, splitter, time_of

COMMAND = (
    "SLURM_TIME_FORMAT=%s sacctmgr --parsable2 show event start=2024-01-01 end=2025-01-01 "
    "format=NodeName,TimeStart,TimeEnd,State"
)


class NodeEvent(NamedTuple):
    """A time (Unix seconds; the end may be infinite) in which a node could not be used."""

    node: str
    start_s: float
    end_s: float


def read_events(path: Path, zone: tzinfo) -> Iterator[NodeEvent]:
    """Yield the events of nodes; those of the whole cluster name no node and are passed over.

    Unlike a log, the file is refused as a whole where a line is malformed: a node that is taken
    for idle by mistake is what it is there to prevent. Raises LogError, OSError.
    """
    lines = read_lines(path)
    _, header = next(lines, (1, ""))
    columns = columns_of(header)
    missing = {"nodename", "timestart", "timeend"} - columns.keys()
    if missing:
        raise LogError(f"--down {path}: no column {', '.join(sorted(missing))}; use: {COMMAND}")
    split = splitter(header)
    for number, line in lines:
        try:
            event = _event(split(line), columns, zone)
        except (ValueError, IndexError, csv.Error) as error:
            raise LogError(f"--down {path}: line {number}: {error}; use: {COMMAND}") from error
        if event.node:
            yield event


def _event(fields: list[str], columns: dict[str, int], zone: tzinfo) -> NodeEvent:
    node = fields[columns["nodename"]]
    start_s = time_of(fields[columns["timestart"]], zone)
    end_s = time_of(fields[columns["timeend"]], zone)
    if start_s is None:
        raise ValueError("it has no beginning")
    if node and len(expand(node)) != 1:
        raise ValueError(f"{node[:30]!r} is not one node")
    return NodeEvent(node, start_s, math.inf if end_s is None else end_s)
