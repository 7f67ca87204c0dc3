"""Merges many logs into one: lines by time, each with the node that wrote it. Pure.

If a file has lines of several nodes, Slurm's own lines separate them: Slurm writes a line with node
and time when it takes an element off a node, and srun's last lines name the node.
"""

from __future__ import annotations

import heapq
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

_ENDED = re.compile(r"\*\*\* JOB \d+ ON (?P<node>\S+) CANCELLED AT (?P<time>\S+) ")
_NAMES_ITS_NODE = re.compile(r"(?:srun: error: |slurmstepd-)(?P<node>[^\s:]+): ")
_LAST_WORDS = ("srun:", "slurmstepd")
_LAST_LINES = 200  # after such a line
_DAY_S = 86_400.0  # a time further ahead of a file's last change is not a time of its lines
_ISO = re.compile(
    r"[\[(]?(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?"
)
_TORCH = re.compile(r"\[?[DIWEF](\d\d)(\d\d) (\d\d:\d\d:\d\d)\.(\d{1,9}) ")  # glog's


@dataclass(frozen=True, slots=True)
class Line:
    """A line of an element's log; ``time_s`` is its own time, or that of the line before."""

    time_s: float
    node: str
    task: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Log:
    """What one element has written, and the node on which it runs or ran last."""

    lines: Sequence[str]
    task: int | None = None
    node: str = ""
    start_s: float | None = None  # when the running element started
    changed_s: float = 0.0  # when the file was written last: for times without a year


def merge(logs: Iterable[Log]) -> Iterator[Line]:
    """Yield the lines of all logs by time; each log keeps its order."""
    return heapq.merge(*map(_with_times, logs), key=lambda line: line.time_s)


def _with_times(log: Log) -> list[Line]:
    """Return the lines, each with its node and a time that never decreases."""
    nodes = _nodes(log)
    times = [time_of(text, log.changed_s) for text in log.lines]
    times = [one if one is not None and one < log.changed_s + _DAY_S else None for one in times]
    known = (one for one in times if one is not None)
    now_s = next(known, log.start_s if log.start_s is not None else log.changed_s)
    found = []
    for text, node, own_s in zip(log.lines, nodes, times, strict=True):
        now_s = max(now_s, own_s) if own_s is not None else now_s
        found.append(Line(now_s, node, log.task, text))
    return found


def _nodes(log: Log) -> list[str]:
    """Return the node of each line."""
    nodes: list[str] = []
    for place, text in enumerate(log.lines):
        taken = _ENDED.search(text)
        match = taken or _NAMES_ITS_NODE.match(text)
        if match is None or place < len(nodes):
            continue
        end = _last_line(log.lines, place, taken["node"]) if taken else place
        nodes += [match["node"]] * (end + 1 - len(nodes))
    return nodes + [log.node] * (len(log.lines) - len(nodes))


def _last_line(lines: Sequence[str], place: int, node: str) -> int:
    """Return the place of the last line of the element that ended here, on this node."""
    end = place
    for later in range(place + 1, min(len(lines), place + _LAST_LINES)):
        match = _ENDED.search(lines[later])
        if match and match["node"] != node:
            break
        if lines[later].startswith(_LAST_WORDS):
            end = later
    return end


def time_of(text: str, about_s: float) -> float | None:
    """Return the time that a line begins with (Unix seconds), None if it has none.

    Without a zone it is local time. A time without a year is the last such time before, or shortly
    after, ``about_s``.
    """
    match = _ISO.match(text) or (_ENDED.search(text) and _ISO.search(text))
    if match:
        day, clock, fraction, zone = match.groups()
        return _seconds(f"{day}T{clock}{zone or ''}", fraction)
    match = _TORCH.match(text)
    if match is None:
        return None
    month, day, clock, fraction = match.groups()
    year = time.localtime(about_s).tm_year
    for one in (year + 1, year, year - 1):
        found = _seconds(f"{one}-{month}-{day}T{clock}", fraction)
        if found is not None and found < about_s + _DAY_S:
            return found
    return None


def _seconds(said: str, fraction: str | None) -> float | None:
    try:
        return datetime.fromisoformat(said).timestamp() + float(f"0.{fraction or 0}")
    except (ValueError, OverflowError):
        return None
