"""From a log file of any kind to its holes, with the caveats that belong to them.

The file's first bytes tell the kind.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.replay.logs import caveats as caveats_of
from bftrainer_slurm.replay.logs import events, history, sacct, swf
from bftrainer_slurm.replay.logs.columns import columns_of
from bftrainer_slurm.replay.logs.counts import Counts
from bftrainer_slurm.replay.logs.edges import trusted
from bftrainer_slurm.replay.logs.gpus import Allocations, FreeGpus, GpuUse, free_gpus
from bftrainer_slurm.replay.logs.holes import HoleTable, between, holes_in, longer, minus
from bftrainer_slurm.replay.logs.jobs import SHOWN_LINES, JobTable, LogError, Notes
from bftrainer_slurm.replay.logs.lines import Lines, read_lines, unzipped
from bftrainer_slurm.replay.logs.nodes import NodeNumbers, Partitions, expand
from bftrainer_slurm.replay.logs.occupancy import Occupancy
from bftrainer_slurm.replay.logs.places import places_of
from bftrainer_slurm.replay.trace import COLUMNS, HOUR_S, PARQUET_MAGIC, TraceError, read_events
from bftrainer_slurm.words import counted

_MOST_UNKNOWN = 0.05  # of a time, before it is said that the log does not reach so far
_MOST_MALFORMED = 0.05  # of a log's lines: with more, its figures would be of another cluster
_MOST_OVERFULL = 1.05  # nodes in use, of the machine: times in whole seconds overlap a little
_BEYOND_S = 31 * 86400.0  # how far beyond its log a time may reach, or as far as the log is long


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What the user knows better than the log; times are Unix seconds."""

    nodes: int | None = None  # of the machine, where the log does not name them
    node_list: str = ""  # these nodes only, in Slurm's syntax
    down: Path | None = None  # when nodes were down, as sacctmgr prints it
    reservations: Path | None = None  # and when they were reserved
    node_types: Path | None = None  # of which type they are, as sinfo prints it
    gpus_per_node: int | None = None  # of nodes that have some
    min_hole_s: float = 10.0
    from_s: float | None = None
    to_s: float | None = None
    zone: tzinfo = UTC


@dataclass(frozen=True, slots=True, eq=False)
class Log:
    """The holes of a log between two times (Unix seconds), and notes made while reading."""

    kind: str
    holes: HoleTable
    nodes: int  # of the machine
    from_s: float
    to_s: float
    notes: Notes | None = None
    caveats: tuple[str, ...] = ()  # what the log cannot say, a sentence each
    jobs: JobTable | None = None  # where the log says when they were submitted
    kinds: tuple[frozenset[str], ...] = ()  # the partitions of each node, as far as jobs tell
    types: tuple[str, ...] = ()  # of each node, where the log or a file tells
    gpus: NDArray[np.int64] | None = None  # of each node, where the log has node lists
    gpu_use: GpuUse | None = None  # these two where jobs had GPUs
    free_gpus: FreeGpus | None = None
    unusable: HoleTable | None = None  # times without a job in which nodes were down or reserved
    kept: float = 1.0  # share of the log's time that is left between its edges
    in_gpus: Log | None = None  # with GPUs in place of nodes, where most nodes have some


def read_log(
    path: Path, options: LogOptions, advance: Callable[[int], None] = lambda _: None
) -> Log:
    """Read a log; calls ``advance`` with how many more bytes of it have been read.

    Raises LogError if the file holds no usable log, OSError if it cannot be read.
    """
    try:
        if path.exists() and not path.is_file():  # it is read twice; /dev/zero has no end
            raise LogError("not a regular file")
        with path.open("rb") as file:
            zipped = (content := unzipped(file)) is not file
            head = content.read(len(history.MAGIC))
        if head == history.MAGIC:
            if zipped:
                raise LogError("it is a gzipped history.sqlite: unpack it first")
            return _from_history(path, options)
        if head.startswith(PARQUET_MAGIC):
            return _from_events(path, options)
        lines = read_lines(path, advance)
        first = next(lines, None)
        if first is None:
            raise LogError("the log is empty")
        if set(COLUMNS) <= set(columns_of(first[1])):
            return _from_events(path, options)
        return _from_jobs(chain((first,), lines), first[1], options)
    except TraceError as error:  # names the file itself
        raise LogError(str(error)) from error
    except LogError as error:
        raise LogError(f"{path}: {error}") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise LogError(f"{path}: {error}; the file is damaged, copy it again") from error


def _from_jobs(lines: Lines, first: str, options: LogOptions) -> Log:
    notes = Notes()
    if swf.is_swf(first):
        machine = swf.Machine()
        jobs = swf.read_swf(lines, notes, machine).once()
        return _from_swf(jobs, machine, notes, options)
    if not sacct.is_header(first):
        raise LogError(
            "neither sacct output with a header line, nor SWF, nor a history or event file; "
            f"use: {sacct.COMMAND}"
        )
    return _from_sacct(sacct.read_sacct(lines, notes, options.zone).once(), notes, options)


def _from_sacct(jobs: JobTable, notes: Notes, options: LogOptions) -> Log:
    if options.nodes:
        raise LogError("the log has node lists: leave out --nodes")
    numbers = NodeNumbers(_expand_list(options.node_list))
    occupancy, partitions = Occupancy(options.min_hole_s), Partitions()
    allocations, counts = Allocations(), []
    for job in jobs:
        try:
            held = numbers.of(job.node_list) if math.isfinite(job.start_s) else None
        except ValueError as error:
            notes.skip(job.line, job.node_list, str(error))
            counts.append(-1)
            continue
        counts.append(job.nodes if held is None else len(held))
        if held is not None and len(held):
            occupancy.add(held, job.start_s, job.end_s)
            partitions.add(held, job.partition)
            if job.gpus:
                all_its = len(expand(job.node_list)) if options.node_list else len(held)
                allocations.add(held, job, all_its)
    others = next((job.node_list for job in jobs if job.node_list), "")
    if options.node_list and others and max(counts) <= 0:
        raise LogError(f"--node-list: no job had one of these nodes; one had {others[:80]}")
    jobs = replace(jobs, nodes=np.array(counts, np.int64)).rows(np.array(counts, int) >= 0)
    started = jobs.rows(jobs.started)
    from_s, to_s = _window(started, notes, options)
    count = len(numbers.names)
    without_job = occupancy.holes(numbers.names, from_s, to_s)
    gpus = _gpus(allocations, count, options.gpus_per_node)
    holes, unusable = _usable(without_job, occupancy, numbers, (from_s, to_s), options)
    edges = _edges(started, notes, (from_s, to_s), options)
    caveats = (*_unknown(options), caveats_of.UNSEEN, *edges, *_caveats(notes, options))
    found = Log(
        "sacct log",
        between(holes, from_s, to_s),
        count,
        from_s,
        to_s,
        notes,
        caveats,
        jobs=jobs,
        kinds=partitions.of(count),
        types=_types(numbers.names, gpus, options),
        gpus=gpus,
        gpu_use=allocations.gpu_use(gpus, without_job, from_s, to_s),
        free_gpus=free_gpus(gpus, allocations.stretches(), holes, unusable, (from_s, to_s)),
        unusable=unusable,
        kept=_kept(started, notes, (from_s, to_s), options),
    )
    if np.count_nonzero(gpus) <= count / 2:
        return found
    return replace(found, in_gpus=_in_gpus(found, numbers, gpus, options))


def _in_gpus(log: Log, numbers: NodeNumbers, gpus: NDArray[np.int64], options: LogOptions) -> Log:
    assert log.jobs is not None
    span_s = log.from_s, log.to_s
    places = places_of(log.jobs, numbers, gpus, log.unusable, span_s, options.min_hole_s)
    return Log(
        log.kind,
        between(places.holes, *span_s),
        len(places.node),
        *span_s,
        jobs=places.jobs,
        kinds=tuple(log.kinds[node] for node in places.node.tolist()),
    )


def _usable(
    without_job: HoleTable,
    occupancy: Occupancy,
    numbers: NodeNumbers,
    span_s: tuple[float, float],
    options: LogOptions,
) -> tuple[HoleTable, HoleTable | None]:
    """Return the holes without the times in which nodes were down or reserved; and those times."""
    told = ((options.down, events.DOWN), (options.reservations, events.RESERVED))
    given = [(path, kind) for path, kind in told if path is not None]
    if not given:
        return without_job, None
    for path, kind in given:
        for event in events.read_events(path, options.zone, kind):
            known = [node for node in map(numbers.known, event.nodes) if node is not None]
            if known:
                occupancy.add(np.array(known, np.int32), event.start_s, event.end_s)
    holes = occupancy.holes(numbers.names, *span_s)
    return holes, minus(without_job, holes)


def _types(names: tuple[str, ...], gpus: NDArray[np.int64], options: LogOptions) -> tuple[str, ...]:
    """Return the type of each node: as given, else how many GPUs it has, if any node has some."""
    if options.node_types is not None:
        told = events.read_types(options.node_types)
        return tuple(told.get(name, "not known") for name in names)
    if not gpus.any():
        return ()
    words = {0: "no GPU seen", 1: "1 GPU"}
    return tuple(words.get(count, f"{count} GPUs") for count in gpus.tolist())


def _from_swf(jobs: JobTable, machine: swf.Machine, notes: Notes, options: LogOptions) -> Log:
    needs_names = (options.node_list, options.down, options.reservations, options.node_types)
    if any(needs_names) or options.gpus_per_node is not None:
        raise LogError(
            "an SWF log has no node lists: --node-list, --down, --reservations, --node-types and "
            "--gpus-per-node cannot be used"
        )
    started = jobs.rows(jobs.started)
    from_s, to_s = _window(started, notes, options)
    counts = Counts(started)
    peak = counts.peak(from_s, to_s)
    nodes = options.nodes or machine.nodes or peak
    if not nodes:
        raise LogError("no job had a node between --from and --to; give --nodes")
    holes = counts.holes(nodes, options.min_hole_s, from_s, to_s)
    caveats = [caveats_of.ANONYMOUS, caveats_of.DOWN, caveats_of.WHOLE]
    if not machine.unixstarttime:
        caveats.append(caveats_of.NO_DATES)
    if nodes == peak and not options.nodes:
        caveats.append(caveats_of.PEAK)
    if options.nodes and peak > _MOST_OVERFULL * nodes:
        raise LogError(f"--nodes {nodes}: jobs used {peak:,} at once; give more, or leave it out")
    if peak > nodes:
        caveats.append(caveats_of.OVERFULL.format(peak=peak, nodes=nodes))
    caveats += [*_edges(started, notes, (from_s, to_s), options), *_caveats(notes, options)]
    inside, kinds = between(holes, from_s, to_s), (frozenset({""}),) * nodes
    kept = _kept(started, notes, (from_s, to_s), options)
    return Log(
        *("SWF log", inside, nodes, from_s, to_s, notes, tuple(caveats), jobs, kinds), kept=kept
    )


def _from_history(path: Path, options: LogOptions) -> Log:
    holes, first_s, last_s = history.read_history(path, options.min_hole_s)
    kind = "history of our own controller"
    return _from_holes(kind, holes, (first_s, last_s), caveats_of.CONTROLLER, options)


def _from_events(path: Path, options: LogOptions) -> Log:
    trace = read_events(path)
    holes = longer(holes_in(trace), options.min_hole_s)
    span_s = (trace.start_s, trace.end_s)
    return _from_holes("list of holes", holes, span_s, caveats_of.LISTED, options)


def _from_holes(
    kind: str, holes: HoleTable, span_s: tuple[float, float], caveat: str, options: LogOptions
) -> Log:
    from_s = max(span_s[0], options.from_s or span_s[0])
    to_s = min(span_s[1], options.to_s or span_s[1])
    _check_window(from_s, to_s, span_s, options.zone)
    caveats = (caveat,) if options.nodes else (caveat, caveats_of.MACHINE)
    inside, nodes = between(holes, from_s, to_s), options.nodes or len(holes.nodes)
    return Log(kind, inside, nodes, from_s, to_s, caveats=caveats)


def _gpus(allocations: Allocations, nodes: int, gpus_per_node: int | None) -> NDArray[np.int64]:
    """Return the GPUs of each node; refuse a number that their jobs belie."""
    found = allocations.gpus(nodes, gpus_per_node)
    if gpus_per_node is None:
        return found
    if not found.any():
        raise LogError(
            "--gpus-per-node: no job in the log has GPUs; leave it out, or, if the site has "
            f"AccountingStorageTRES=gres/gpu, write the log anew: {sacct.COMMAND}"
        )
    seen = int(allocations.gpus(nodes, None).max())
    if seen > gpus_per_node and allocations.beyond(gpus_per_node) > _MOST_OVERFULL - 1:
        raise LogError(
            f"--gpus-per-node {gpus_per_node}: jobs used {seen} GPUs of a node at once; give more, "
            "or leave it out"
        )
    return found


def _expand_list(node_list: str) -> tuple[str, ...]:
    try:
        return tuple(expand(node_list)) if node_list else ()
    except ValueError as error:
        raise LogError(f"--node-list: {error}") from error


def _window(started: JobTable, notes: Notes, options: LogOptions) -> tuple[float, float]:
    """Return from when to when to look at a log, by the jobs that have started; and count them."""
    notes.jobs, notes.running = len(started), int(np.isinf(started.end_s).sum())
    if not notes.jobs:
        why = "no line of a job can be used" if notes.malformed else "no job in it ever held a node"
        raise LogError(f"{why}{_first_bad_line(notes)}")
    if notes.malformed > max(SHOWN_LINES, _MOST_MALFORMED * notes.lines):
        raise LogError(f"it is broken{_first_bad_line(notes)}; write it anew: {sacct.COMMAND}")
    if notes.running == notes.jobs:
        raise LogError("no job in it has an end: take a log of a time that has passed")
    from_s, to_s = options.from_s, options.to_s
    if from_s is None or to_s is None:
        try:
            trusted_from_s, trusted_to_s = trusted(
                started.rows(started.nodes > 0), notes.last_submit_s
            )
        except ValueError as error:
            held = _span_text(_span(started, notes), options.zone)
            raise LogError(
                f"{error}, so say from when to when to look: --from and --to (replay: --from and "
                f"--hours); the log holds {held}"
            ) from error
        from_s = trusted_from_s if from_s is None else from_s
        to_s = trusted_to_s if to_s is None else to_s
    _check_window(from_s, to_s, _span(started, notes), options.zone)
    return from_s, to_s


def _span(started: JobTable, notes: Notes) -> tuple[float, float]:
    """Return the first and the last moment that a log knows of."""
    ends_s = started.end_s[np.isfinite(started.end_s)]
    last_s = max(float(started.start_s.max()), float(ends_s.max(initial=0.0)), notes.last_submit_s)
    return float(np.fmin(started.start_s, started.eligible_s).min()), last_s


def _check_window(from_s: float, to_s: float, span_s: tuple[float, float], zone: tzinfo) -> None:
    """Refuse a time outside the log, and one that reaches far beyond: it would count as idle."""
    first_s, last_s = span_s
    held = _span_text(span_s, zone)
    if not max(from_s, first_s) < min(to_s, last_s):
        raise LogError(f"nothing is left between --from and --to: the log holds {held}")
    beyond_s = max(last_s - first_s, _BEYOND_S)
    if first_s - from_s > beyond_s or to_s - last_s > beyond_s:
        raise LogError(f"the log holds only {held}; ask for less by --from, --to or --days")


def _span_text(span_s: tuple[float, float], zone: tzinfo) -> str:
    return " to ".join(f"{datetime.fromtimestamp(s, zone):%Y-%m-%d %H:%M}" for s in span_s)


def _first_bad_line(notes: Notes) -> str:
    if not notes.bad_lines:
        return ""
    first = notes.bad_lines[0]
    count = f"{notes.malformed:,} of {counted(notes.lines, 'line')} cannot be read"
    return f"; {count}, the first is line {first.number}: {first.why}"


def _unknown(options: LogOptions) -> tuple[str, ...]:
    """What is missing because it was not given for nodes."""
    if options.down is None and options.reservations is None:
        return (caveats_of.DOWN,)
    if options.reservations is None:
        return (caveats_of.RESERVED,)
    return () if options.down is not None else (caveats_of.ONLY_RESERVED,)


def _kept(
    started: JobTable, notes: Notes, window_s: tuple[float, float], options: LogOptions
) -> float:
    """Return which share of the log's time is left; 1 if the user says from when to when."""
    if options.from_s is not None and options.to_s is not None:
        return 1.0
    (first_s, last_s), (from_s, to_s) = _span(started, notes), window_s
    return min(1.0, (min(to_s, last_s) - max(from_s, first_s)) / (last_s - first_s))


def _edges(
    started: JobTable, notes: Notes, window_s: tuple[float, float], options: LogOptions
) -> Iterator[str]:
    """What is missing at the edges of the time that is looked at."""
    (first_s, last_s), (from_s, to_s) = _span(started, notes), window_s
    unknown_s = max(0.0, first_s - from_s) + max(0.0, to_s - last_s)
    if unknown_s > _MOST_UNKNOWN * (to_s - from_s):
        yield caveats_of.BEYOND.format(held=_span_text((first_s, last_s), options.zone))
    if options.from_s is None or options.to_s is None:
        kept = _kept(started, notes, window_s, options)
        hours = (last_s - first_s) / HOUR_S
        yield caveats_of.EDGES.format(left=kept * hours, hours=hours, kept=100 * kept)


def _caveats(notes: Notes, options: LogOptions) -> Iterator[str]:
    """What the reader noticed about times and GPUs."""
    if notes.local_times:
        yield caveats_of.LOCAL.format(zone=options.zone)
    if math.isinf(notes.last_submit_s):
        yield caveats_of.NO_SUBMIT.format(command=sacct.COMMAND)
    if notes.slices:
        yield caveats_of.SLICES.format(kind=notes.slices)
    if notes.running:
        yield caveats_of.RUNNING.format(jobs=counted(notes.running, "job"))
