"""Reads what Slurm's ``sacct`` prints with ``--parsable2``, or the same as CSV.

The header line names the columns, in any order; docs/assess.md has the command.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from datetime import datetime, tzinfo
from functools import lru_cache

from bftrainer_slurm.replay.logs.jobs import Job, LogError, Notes, checked
from bftrainer_slurm.replay.logs.lines import Lines

COLUMNS = (
    "JobID,Partition,Priority,NNodes,NCPUS,Submit,Eligible,Start,End,State,Flags,TimelimitRaw,"
    "ReqTRES,AllocTRES,NodeList"
)
COMMAND = (
    "SLURM_TIME_FORMAT=%s sacct --allusers --allocations --duplicates --noconvert --parsable2 "
    "--starttime=2024-01-01 --endtime=2025-01-01 "
    f"--format={COLUMNS}"
)
_DIGITS = 12  # of Unix seconds
_NEVER = {"", "Unknown", "None", "N/A"}
_NO_NODES = {"", "None", "None assigned", "N/A", "(null)"}
_OTHER_NAMES = {"allocnodes": "nnodes", "alloccpus": "ncpus"}
_UNITS_MB = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_SCHEDULERS = {"SchedBackfill": True, "SchedMain": False, "SchedSubmit": False}


def is_header(line: str) -> bool:
    """Whether a line names columns of ``sacct``, those that are needed among them."""
    names = columns_of(line)
    return {"jobid", "start", "end"} <= names.keys()


def has_node_lists(header: str) -> bool:
    """Whether the log says which nodes a job had."""
    return "nodelist" in columns_of(header)


def read_sacct(lines: Lines, notes: Notes, zone: tzinfo) -> Iterator[Job]:
    """Yield every stretch in which a job had nodes, and jobs that have waited in vain.

    Times are Unix seconds (``SLURM_TIME_FORMAT=%s``) or ISO without a zone, taken to be in
    ``zone``. Raises LogError where the header lacks a column.
    """
    first = next(lines, None)
    if first is None:
        raise LogError("the log is empty")
    _, header = first
    row = _Row(header, zone)
    split = splitter(header)
    for number, line in lines:
        if line == header:  # several outputs, one after the other
            continue
        try:
            job = row.job(number, split(line), notes)
        except (ValueError, IndexError, OverflowError, csv.Error) as error:
            notes.skip(number, line, str(error) or "it has too few columns")
            continue
        if job is not None:
            yield job


class _Row:
    """Where a row has what, and what it says."""

    def __init__(self, header: str, zone: tzinfo) -> None:
        columns = columns_of(header)
        missing = [name for name in ("JobID", "Start", "End") if name.lower() not in columns]
        if not {"nnodes", "nodelist"} & columns.keys():
            missing.append("NNodes or NodeList")
        if missing:
            raise LogError(f"the header has no column {', '.join(missing)}; use: {COMMAND}")
        self._columns = len(splitter(header)(header))
        self._id, self._start, self._end = (columns[name] for name in ("jobid", "start", "end"))
        self._submit, self._eligible = columns.get("submit"), columns.get("eligible")
        self._flags, self._priority = columns.get("flags"), columns.get("priority")
        self._partition = columns.get("partition")
        self._list = columns.get("nodelist")
        self._count = columns.get("nnodes")
        self._cpus = columns.get("ncpus") if self._list is None else None
        self._limit = columns.get("timelimitraw")
        self._asked, self._had = columns.get("reqtres"), columns.get("alloctres")
        self._zone = zone

    def job(self, line: int, fields: list[str], notes: Notes) -> Job | None:
        """Read one row; None where it is none of a job that waited or ran."""
        if len(fields) != self._columns:
            raise ValueError(f"it has {len(fields)} columns, the header {self._columns}")
        name = fields[self._id]
        if "." in name:
            notes.steps += 1
            return None
        start_s, end_s = self._time(self._start, fields), self._time(self._end, fields)
        submit_s = self._time(self._submit, fields)
        notes.last_submit_s = max(notes.last_submit_s, submit_s or -math.inf)
        eligible_s = submit_s if self._eligible is None else self._time(self._eligible, fields)
        listed = "" if self._list is None else fields[self._list]
        if start_s is None or start_s == end_s or (self._list is not None and listed in _NO_NODES):
            notes.never_ran += 1
            if eligible_s is None or end_s is None or not eligible_s < end_s:
                return None
            start_s, listed = math.inf, ""
        elif eligible_s is None and self._eligible is not None:
            eligible_s = start_s
        gpus, memory_mb = _tres(self._text(self._had, fields) or self._text(self._asked, fields))
        return checked(
            Job(
                line=line,
                key=hash((name, start_s)),
                start_s=start_s,
                end_s=math.inf if end_s is None else end_s,
                # Where the nodes are listed, how many they are need not be said right.
                nodes=1 if self._count is None or listed else _whole(fields[self._count]),
                cpus=0 if self._cpus is None else _whole(fields[self._cpus]),
                node_list=listed,
                eligible_s=math.nan if eligible_s is None else min(eligible_s, start_s),
                backfilled=self._backfilled(fields),
                priority=self._of(self._priority, fields),
                partition=self._text(self._partition, fields),
                gpus=gpus,
                memory_mb=memory_mb,
                limit_s=60.0 * (self._of(self._limit, fields) or math.inf),
            )
        )

    def _backfilled(self, fields: list[str]) -> bool | None:
        flags = () if self._flags is None else fields[self._flags].split(",")
        return next((_SCHEDULERS[flag] for flag in flags if flag in _SCHEDULERS), None)

    @staticmethod
    def _text(column: int | None, fields: list[str]) -> str:
        return "" if column is None else fields[column]

    @classmethod
    def _of(cls, column: int | None, fields: list[str]) -> int:
        text = cls._text(column, fields)
        return int(text) if text.isdecimal() and len(text) <= _DIGITS else 0

    def _time(self, column: int | None, fields: list[str]) -> float | None:
        return None if column is None else time_of(fields[column], self._zone)


@lru_cache(1 << 16)  # most jobs ask for what others do
def _tres(text: str) -> tuple[int, float]:
    """Return GPUs and MB in what Slurm writes as ``cpu=4,gres/gpu:a100=2,gres/gpu=2,mem=8G``."""
    counts = dict(one.partition("=")[::2] for one in text.split(",") if "=" in one)
    of_types = sum(_whole(n) for name, n in counts.items() if name.startswith("gres/gpu:"))
    memory = counts.get("mem", "0")
    unit = _UNITS_MB.get(memory[-1:], 0.0)
    memory_mb = float(memory[:-1]) * unit if unit else float(memory)
    return _whole(counts.get("gres/gpu", str(of_types))), memory_mb


def _whole(text: str) -> int:
    """Read a number; without ``--noconvert`` sacct may write 4096 as ``4K``."""
    unit = 1024 if text.endswith("K") else 1
    return int(text.removesuffix("K")) * unit


def columns_of(header: str) -> dict[str, int]:
    """Return where each column of a header is, by its name in small letters; none in no header."""
    try:
        names = [name.strip().lower() for name in splitter(header)(header)]
    except csv.Error:
        return {}
    # Where a log has two columns for one thing, the one by its own name: it comes last here.
    others = {_OTHER_NAMES[name]: at for at, name in enumerate(names) if name in _OTHER_NAMES}
    return others | {name: at for at, name in enumerate(names) if name not in _OTHER_NAMES}


def splitter(header: str) -> Callable[[str], list[str]]:
    """Return what splits the lines below a header into columns."""
    if "|" in header:
        return lambda line: line.split("|")
    return lambda line: next(csv.reader((line,)))


def time_of(text: str, zone: tzinfo) -> float | None:
    """Return Unix seconds, None where Slurm says that there is no time; or raise ValueError."""
    if text.isdecimal() and len(text) <= _DIGITS:
        return float(text)
    if text in _NEVER:
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()
    except ValueError:
        raise ValueError(f"{text[:30]!r} is no time") from None
