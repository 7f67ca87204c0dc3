"""Reads what Slurm's ``sacct`` prints with ``--parsable2``, or the same as CSV.

The header line names the columns, in any order; docs/planner-guide.md has the command.
"""

from __future__ import annotations

import math
from datetime import datetime, tzinfo
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.model import MIG
from bftrainer_slurm.replay.logs.columns import Rows, columns_of, first_of, rows_of, splitter
from bftrainer_slurm.replay.logs.jobs import (
    JobTable,
    LogError,
    Notes,
    Objects,
    Reals,
    faults,
    keys_of,
)
from bftrainer_slurm.replay.logs.lines import Lines

COLUMNS = (
    "JobID,Partition,Priority,NNodes,Submit,Eligible,Start,End,State,Flags,TimelimitRaw,"
    "ReqTRES,AllocTRES,NodeList"
)
FLAGS = "--allusers --allocations --duplicates --noconvert --parsable2"
COMMAND = (
    f"SLURM_TIME_FORMAT=%s sacct {FLAGS} --starttime=2024-01-01 --endtime=2025-01-01 "
    f"--format={COLUMNS}"
)
_DIGITS = 12  # of Unix seconds
_NEVER = {"", "Unknown", "None", "N/A"}
_NO_NODES = ["", "None", "None assigned", "N/A", "(null)"]
_USED = {name.lower() for name in COLUMNS.split(",")}
_OVER = ("COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY")  # states of jobs that have an end
_OTHER_NAMES = {"allocnodes": "nnodes", "jobidraw": "jobid"}
_SCHEDULERS = {"SchedMain": 0, "SchedSubmit": 0, "SchedBackfill": 1}
_BACKFILLED = np.array([False, True, None], object)  # by scheduler; the last means unknown


def is_header(line: str) -> bool:
    """Whether a line names columns of ``sacct``."""
    columns = {_OTHER_NAMES.get(name, name) for name in columns_of(line)}
    return "jobid" in columns and len(_USED.intersection(columns)) > 1


def read_sacct(lines: Lines, notes: Notes, zone: tzinfo) -> JobTable:
    """Return every stretch in which a job had nodes, and jobs that waited without ever starting.

    Times are Unix seconds (``SLURM_TIME_FORMAT=%s``) or ISO without a zone, taken to be in
    ``zone``. Raises LogError if the header lacks a column.
    """
    _, header = next(lines, (0, ""))
    if not header:
        raise LogError("the log is empty")
    columns = columns_of(header)
    # If a log has two columns for one thing, the exact name counts: it comes last here.
    names = {_OTHER_NAMES.get(name, name): at for at, name in enumerate(columns)}
    names |= {name: at for at, name in enumerate(columns)}
    needed = ("JobID", "Start", "End", "NodeList")
    if missing := [name for name in needed if name.lower() not in names]:
        raise LogError(f"the header has no column {', '.join(missing)}; use: {COMMAND}")
    used = {name: names[name] for name in _USED if name in names}
    others = (line for line in lines if line[1] != header)  # several outputs, one after the other
    batches = rows_of(others, splitter(header), len(columns), used, notes)
    return JobTable.joined(_jobs(rows, notes, zone) for rows in batches)


def _jobs(rows: Rows, notes: Notes, zone: tzinfo) -> JobTable:
    """Return those of the rows that are of a job that waited or ran; note the others."""
    is_step = np.array(["." in name for name in rows.texts("jobid")], bool)
    notes.steps += int(is_step.sum())
    rows, (start_s, end_s, submit_s, eligible_s) = _with_times(rows.only(~is_step), notes, zone)
    latest_s = float(np.fmax.reduce(submit_s, initial=-math.inf))
    notes.last_submit_s = max(notes.last_submit_s, latest_s)
    ran = np.isfinite(start_s) & (start_s != end_s) & ~np.isin(rows.texts("nodelist"), _NO_NODES)
    notes.never_ran += int((~ran).sum())
    start_s[~ran] = np.inf
    kept = ran | (eligible_s < end_s)
    end_s[np.isnan(end_s)] = np.inf
    if "eligible" in rows.columns:
        eligible_s = np.where(np.isnan(eligible_s), start_s, eligible_s)
    return _checked(rows.only(kept), start_s[kept], end_s[kept], eligible_s[kept], notes)


def _with_times(rows: Rows, notes: Notes, zone: tzinfo) -> tuple[Rows, NDArray[np.float64]]:
    """Return the rows whose times can be read; with start, end, submission, and eligible since."""
    time = partial(time_of, zone=zone)
    submit = rows.numbers("submit", time, math.nan)
    eligible = rows.numbers("eligible", time) if "eligible" in rows.columns else submit
    found = (rows.numbers("start", time), rows.numbers("end", time), submit, eligible)
    notes.local_times |= any("-" in text for text in rows.texts("start"))
    endless = np.full(len(rows.line), "", object)
    if "state" in rows.columns:
        over = np.isin(rows.texts("state"), _OVER) & np.isfinite(found[0][0])
        endless[over & np.isnan(found[1][0])] = "it is over, but has no end"
    good = rows.readable(first_of(*(why for _, why in found), endless), notes)
    return rows.only(good), np.stack([times_s[good] for times_s, _ in found])


def _checked(rows: Rows, start_s: Reals, end_s: Reals, eligible_s: Reals, notes: Notes) -> JobTable:
    """Return the jobs of these rows; note the impossible ones."""
    listed = np.where(np.isfinite(start_s), rows.texts("nodelist"), "")
    nodes, why_nodes = rows.numbers("nnodes", _whole, 1.0)
    # If the nodes are listed, their number may be wrong.
    nodes, why_nodes = np.where(listed == "", nodes, 1.0), np.where(listed == "", why_nodes, "")
    gpus, why_gpus = _allocated_or_asked(rows)
    notes.slices = notes.slices or _slices(rows)
    scheduler = rows.numbers("flags", _scheduler, 2)[0].astype(int)
    jobs = JobTable.made(
        line=rows.line,
        key=keys_of(rows.texts("jobid"), start_s),
        start_s=start_s,
        end_s=end_s,
        nodes=nodes,
        node_list=listed,
        eligible_s=np.minimum(eligible_s, start_s),
        backfilled=_BACKFILLED[scheduler],
        priority=rows.numbers("priority", _number)[0],
        partition=rows.texts("partition"),
        gpus=gpus,
        limit_s=60.0 * rows.numbers("timelimitraw", _limit, math.inf)[0],
    )
    why = first_of(why_gpus, why_nodes, faults(jobs))
    return jobs.rows(rows.readable(why, notes))


def _allocated_or_asked(rows: Rows) -> tuple[Reals, Objects]:
    """Return the GPUs that each job had, or else asked for."""
    had, why_had = rows.numbers("alloctres", _gpus, math.nan)
    asked, why_asked = rows.numbers("reqtres", _gpus)
    empty = rows.texts("alloctres") == ""
    return np.where(empty, asked, had), np.where(empty, why_asked, why_had)


def _scheduler(flags: str) -> int:
    return next((_SCHEDULERS[flag] for flag in flags.split(",") if flag in _SCHEDULERS), 2)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else 0


def _limit(text: str) -> float:
    return _number(text) or math.inf


def _counts(tres: str) -> dict[str, str]:
    """Read what Slurm writes as ``cpu=4,gres/gpu:a100=2,gres/gpu=2,mem=8G``."""
    return dict(one.partition("=")[::2] for one in tres.split(",") if "=" in one)


def _gpus(tres: str) -> int:
    counts = _counts(tres)
    of_types = sum(_whole(n) for name, n in counts.items() if name.startswith("gres/gpu:"))
    return _whole(counts.get("gres/gpu", str(of_types)))


def _slices(rows: Rows) -> str:
    """Return a kind of slice of a GPU (MIG) that a job had or asked for, if any did."""
    texts = {*rows.texts("alloctres").tolist(), *rows.texts("reqtres").tolist()}
    names = {name for text in texts for name in _counts(text)}
    return min(
        (one for one in names if one.startswith("gres/gpu:") and MIG.search(one)), default=""
    )


def _whole(text: str) -> int:
    """Read a number; without ``--noconvert`` sacct may write 4096 as ``4K``."""
    unit = 1024 if text.endswith("K") else 1
    return int(text.removesuffix("K")) * unit


def time_of(text: str, zone: tzinfo) -> float | None:
    """Return Unix seconds, None if Slurm says that there is no time; or raise ValueError."""
    if text.isdecimal() and len(text) <= _DIGITS:
        return float(text)
    if text in _NEVER:
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()
    except ValueError:
        raise ValueError(f"{text[:30]!r} is not a time") from None
