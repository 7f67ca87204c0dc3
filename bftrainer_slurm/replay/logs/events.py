"""What jobs do not tell about nodes: when they were down or reserved, and which type they are.

The first two as ``sacctmgr`` prints them, the third as ``sinfo`` does. Unlike a log, such a file is
refused as a whole if one line is malformed: it is there to prevent that a node wrongly counts as
idle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from typing import NamedTuple

from bftrainer_slurm.replay.logs.columns import columns_of, fields
from bftrainer_slurm.replay.logs.jobs import LogError
from bftrainer_slurm.replay.logs.lines import read_lines
from bftrainer_slurm.replay.logs.nodes import expand
from bftrainer_slurm.replay.logs.sacct import time_of

_COMMAND = "SLURM_TIME_FORMAT=%s sacctmgr --parsable2 show {} start=2024-01-01 end=2025-01-01 "
TYPES_COMMAND = "sinfo --noheader --all --format='%N %f'"


@dataclass(frozen=True, slots=True)
class Kind:
    """What such a file lists: the option that names it, and the command that writes it."""

    option: str
    command: str


DOWN = Kind("--down", _COMMAND.format("event") + "format=NodeName,TimeStart,TimeEnd,State")
RESERVED = Kind(
    "--reservations", _COMMAND.format("reservation") + "format=NodeName,TimeStart,TimeEnd,Name"
)


class NodeEvent(NamedTuple):
    """A time (Unix seconds; the end may be infinite) in which nodes could not be used."""

    nodes: tuple[str, ...]
    start_s: float
    end_s: float


def read_events(path: Path, zone: tzinfo, kind: Kind) -> Iterator[NodeEvent]:
    """Yield the events of nodes; skip those of the whole cluster, which name no node.

    Raises LogError, OSError.
    """
    lines = read_lines(path)
    _, header = next(lines, (1, ""))
    columns = columns_of(header)
    missing = {"nodename", "timestart", "timeend"}.difference(columns)
    if missing:
        names = ", ".join(sorted(missing))
        raise LogError(f"{kind.option} {path}: no column {names}; use: {kind.command}")
    for number, line in lines:
        try:
            event = _event(dict(zip(columns, fields(line, header), strict=True)), zone)
        except ValueError as error:
            raise LogError(
                f"{kind.option} {path}: line {number}: {error}; use: {kind.command}"
            ) from error
        if event.nodes:
            yield event


def _event(row: dict[str, str], zone: tzinfo) -> NodeEvent:
    names = row["nodename"]
    start_s, end_s = time_of(row["timestart"], zone), time_of(row["timeend"], zone)
    if start_s is None:
        raise ValueError("it has no beginning")
    nodes = tuple(expand(names)) if names else ()
    return NodeEvent(nodes, start_s, end_s or math.inf)


def read_types(path: Path) -> dict[str, str]:
    """Return the type of each node; a line has a node list and, after a blank, its type.

    Raises LogError, OSError.
    """
    found: dict[str, str] = {}
    for number, line in read_lines(path):
        names, _, type_ = line.partition(" ")
        try:
            if not type_.strip():
                raise ValueError("it has no type")
            found |= dict.fromkeys(expand(names), type_.strip()[:80])
        except ValueError as error:
            raise LogError(
                f"--node-types {path}: line {number}: {error}; use: {TYPES_COMMAND}"
            ) from error
    return found
