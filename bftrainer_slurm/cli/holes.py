"""The holes that ``bftrainer replay`` replays: from events, from a log, or of a made-up cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bftrainer_slurm.cli.common import fail_on
from bftrainer_slurm.cli.joblogs import print_notes, read_file, synthetic_log
from bftrainer_slurm.replay.logs.holes import select, trace_of_holes
from bftrainer_slurm.replay.logs.log import Log, LogOptions
from bftrainer_slurm.replay.trace import Trace, TraceError, read_events

EVENTS, LOG, SYNTHETIC = "--events", "--log", "--synthetic"
_DAY_HOURS = 24.0  # of a made-up cluster


def read_holes(
    source: str,
    said: Path | str,
    asked: LogOptions,
    hours: float | None,
    nodes: int | None,
) -> tuple[Trace, tuple[str, ...]]:
    """Return the part of the holes to replay, and what their log cannot say.

    ``said`` is the value of the option ``source``, ``asked`` has the begin of the part.
    """
    caveats: tuple[str, ...] = ()
    span = asked.from_s, hours
    if source == EVENTS:
        with fail_on(TraceError, begin="--events "):  # it names the file
            trace = read_events(Path(said))
    else:
        if source == LOG:
            log, span = _some_hours(Path(said), asked, hours), (None, None)
        else:
            days = (hours or _DAY_HOURS) / 24
            log = synthetic_log(str(said), days, asked.min_hole_s)
        trace, caveats = trace_of_holes(log.holes, log.from_s, log.to_s), log.caveats
    with fail_on(TraceError, begin=f"{source} {said}: "):
        return select(trace, nodes, *span), caveats


def _some_hours(path: Path, asked: LogOptions, hours: float | None) -> Log:
    """Return some hours of a log file, or all of it."""
    if hours is not None and asked.from_s is not None:
        asked = replace(asked, to_s=asked.from_s + 3600.0 * hours)
    found = read_file(path, asked)
    if hours is not None and asked.from_s is None:  # only the log itself says when it begins
        begin_s, end_s = found.from_s, min(found.to_s, found.from_s + 3600.0 * hours)
        found = read_file(path, replace(asked, from_s=begin_s, to_s=end_s))
    print_notes(found.notes)
    return found
