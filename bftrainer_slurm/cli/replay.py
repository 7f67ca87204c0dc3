"""``bftrainer replay``: what trainers would have done with the holes in a trace."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import Any

import click

from bftrainer_slurm.cli.common import BAD_INPUT, fail, fail_on, print_json, safe
from bftrainer_slurm.cli.files import check_folder, write_output
from bftrainer_slurm.cli.gpus import (
    check_gpus,
    check_jobs_like,
    element_gpus_option,
    gpus_per_node_option,
    jobs_like_option,
    parts_planner,
)
from bftrainer_slurm.cli.joblogs import print_notes, progress, read_file, synthetic_log
from bftrainer_slurm.cli.options import (
    FILE,
    FOLDER,
    count,
    given_options,
    json_option,
    number,
    time_zone_option,
)
from bftrainer_slurm.cli.simulation import POLICIES, ReplayOptions, TimedPlanner
from bftrainer_slurm.cli.simulation import replay as replay_trace
from bftrainer_slurm.planner.objectives import ObjectiveError, find
from bftrainer_slurm.planner.problem import Plan
from bftrainer_slurm.planner.solver import Planner
from bftrainer_slurm.replay.assessment.gpus import gpus_document, gpus_rows
from bftrainer_slurm.replay.assessment.parts import Compared, FreeHours, compare, free_hours
from bftrainer_slurm.replay.cluster import Moment
from bftrainer_slurm.replay.drive import Timeline
from bftrainer_slurm.replay.figures import document
from bftrainer_slurm.replay.figures import rows as rows_of
from bftrainer_slurm.replay.logs.hardware import GpuUse
from bftrainer_slurm.replay.logs.holes import select, trace_of_holes
from bftrainer_slurm.replay.logs.log import Log, LogOptions
from bftrainer_slurm.replay.trace import Trace, TraceError, read_events
from bftrainer_slurm.replay.trainers import (
    TrainersError,
    TrainerSpec,
    read_trainers,
    typical_trainers,
)
from bftrainer_slurm.words import counted

SCHEMA = 1
_MOST = 10_000
_LOOK_S = 30.0  # on parts of nodes without --look-every; as in assess


@click.command()
@click.option(
    "--events",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Node events: parquet or CSV with the columns time, node, idle; plain or gzipped.",
)
@click.option(
    "--synthetic", metavar="NODES[:LOAD[:SEED]]", help="Use the holes of a made-up cluster instead."
)
@click.option(
    "--trainers",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Trainers in JSON, see 'bftrainer help files'. [default: made-up ones that never end]",
)
@click.option(
    "--log",
    type=FILE,
    help="Use the idle nodes of a centre's log instead, as 'bftrainer assess' reads it.",
)
@gpus_per_node_option
@jobs_like_option
@element_gpus_option
@time_zone_option("the log's times if they name none")
@click.option("--nodes", help="Use only the first K nodes, by name.", **count("K", 1))
@click.option(
    "--at-once",
    help="How many trainers are submitted at a time. The next one comes when one is done.",
    **count("N", 1, _MOST, 10),
)
@click.option(
    "--forward-time",
    "forward_time_s",
    help="How far a plan looks ahead. [default: adapted to the holes seen lately]",
    **number("SECONDS", 1, 1e6),
)
@click.option(
    "--policy",
    type=click.Choice(POLICIES),
    default="milp",
    show_default=True,
    help="Which planner decides, see above.",
)
@click.option(
    "--objective",
    metavar="NAME",
    default="speedup",
    show_default=True,
    help="What plans maximise, see 'bftrainer help objectives'.",
)
@click.option(
    "--rescale-scale",
    help="Multiply the trainers' rescale costs by this.",
    **number("FACTOR", 0, 1e3, 1.0),
)
@click.option(
    "--look-every",
    "look_every_s",
    help="See new holes only this often. The controller takes 15. 0: at once, as in the paper.",
    **number("SECONDS", 0, 3600, 0.0),
)
@click.option(
    "--from",
    "from_s",
    help="Begin here. [default: the first event]",
    **number("UNIX-SECONDS", 0),
)
@click.option(
    "--hours",
    help="Replay so many hours. [default: to the last event; a made-up cluster: 24]",
    **number("HOURS", 0, 1e5, min_open=True),
)
@click.option(
    "--learn-curves",
    is_flag=True,
    help="Plan with what trainers have shown so far, not with the curves in --trainers.",
)
@click.option(
    "--repeat",
    help="List the trainers this many times, so that they do not run out.",
    **count("TIMES", 1, 1000, 1),
)
@click.option("--backlog", is_flag=True, help="All trainers wait from the start.")
@click.option(
    "--report",
    type=FOLDER,
    metavar="DIR",
    help="Write an HTML page with figures, and the JSON, into this folder.",
)
@json_option
def replay(
    events: Path | None,
    synthetic: str | None,
    log: Path | None,
    gpus_per_node: int | None,
    jobs_like: str,
    element_gpus: tuple[tuple[int, ...], ...],
    zone: tzinfo,
    trainers: Path | None,
    nodes: int | None,
    from_s: float | None,
    hours: float | None,
    repeat: int,
    backlog: bool,
    report: Path | None,
    as_json: bool,
    **how: Any,  # fields of ReplayOptions
) -> None:
    """Replay a trace of holes with elastic trainers, planned by the controller's own loop.

    U compares the samples reached with those that the same trainers reach in the same time on
    dedicated nodes, without rescaling costs. There are as many dedicated nodes as the pool has on
    average. U_free is U if rescaling costs nothing in the holes either.

    \b
    Policies:
      milp         plans as the controller does
      paper        the paper's model: its costs, and any node is as good as another
      equal-share  every trainer gets the same number of nodes
      oracle       as milp, but it knows when each hole ends

    \b
    Examples:
      bftrainer replay --synthetic 200:0.9
      bftrainer replay --log jobs.txt --element-gpus 1 --element-gpus 4
      bftrainer replay --events week1.parquet --trainers hpo.json --nodes 1024 --json
    """
    options = ReplayOptions(**how)
    with fail_on(ObjectiveError, begin="--objective: "):
        find(options.objective)
    with fail_on(TrainersError, begin="--trainers "):
        listed = read_trainers(trainers) if trainers else typical_trainers(options.at_once)
    _refuse_unused_options(events, synthetic, log)
    check_jobs_like(gpus_per_node)
    asked = LogOptions(gpus_per_node=gpus_per_node, zone=zone, from_s=from_s)
    of_log = None if events is not None else _read_log(log, synthetic, hours, asked, jobs_like)
    if of_log is not None:
        check_gpus(of_log, element_gpus)
    trace = _read_trace(events, of_log, nodes, *((None, None) if log else (from_s, hours)))
    wanted = _with_submit_times(listed, trainers, trace, backlog) * repeat
    check_folder("--report", report)
    timeline = Timeline()
    greedy: list[str] = []  # why a plan was made without the solver

    def judge(plan: Plan, _: float) -> None:
        if plan.status == "greedy":
            greedy.append(plan.reason)

    length = max(1, int(trace.end_s - trace.start_s))
    with _without_warnings(), Planner() as planner, progress("replaying", length) as bar:
        planner.warm_up()

        def watch(moment: Moment) -> None:
            timeline.add(moment)
            bar.update(int(moment.time_s - trace.start_s) - bar.pos)

        found = replay_trace(trace, wanted, options, TimedPlanner(planner, judge), watch)
    if greedy:
        click.echo(f"note: {counted(len(greedy), 'greedy plan')}: {greedy[-1]}", err=True)
    if found.outcome.trainers_done == len(wanted):
        click.echo("note: all trainers ended too early, so U says little; see --repeat", err=True)
    log_of_gpus = None if nodes else of_log
    of_gpus = _compare_gpus(
        log_of_gpus, listed[: options.at_once], element_gpus, options.look_every_s
    )
    figures = document(found) | {"gpus": gpus_document(*of_gpus)}
    rows = [*rows_of(found), *gpus_rows(*of_gpus)]
    if as_json:
        print_json({"schema": SCHEMA, **figures})
    else:
        click.echo("\n".join(f"{name:<19}{text}" for name, text in rows))
    for caveat in () if of_log is None else of_log.caveats:
        click.echo(f"note: {caveat}", err=True)
    if report is not None:
        from bftrainer_slurm.replay.page import write_page  # imports matplotlib

        seen, span_s = timeline.moments, (trace.start_s, trace.end_s)
        write = partial(write_page, document=figures, rows=rows, moments=seen, span_s=span_s)
        if not write_output("--report", report, write):
            raise SystemExit(BAD_INPUT)
        click.echo(f"report: {safe(report / 'replay.html', 400)}", err=True)


def _refuse_unused_options(events: Path | None, synthetic: str | None, log: Path | None) -> None:
    """Refuse options that would change nothing in the output."""
    if sum(one is not None for one in (events, synthetic, log)) != 1:
        fail("give either --events FILE, --log FILE or --synthetic NODES")
    options = given_options().keys()
    gpus = "gpus_per_node" in options
    if events is not None and options & {"gpus_per_node", "element_gpus"}:
        fail("events say nothing of GPUs; give a --log, or leave out the options about GPUs")
    if synthetic is None and "jobs_like" in options:
        fail("--jobs-like goes with --synthetic only; leave it out")
    if synthetic is not None and "element_gpus" in options and not gpus:
        fail("--element-gpus: the made-up cluster has no GPUs; give its --gpus-per-node too")
    if log is None and "zone" in options:
        fail("--time-zone goes with --log only; leave it out")
    if synthetic is not None and gpus and "from_s" in options:
        fail("--from: a made-up GPU cluster has no earlier part; leave it out")
    if "element_gpus" in options and "nodes" in options:
        fail("--element-gpus counts the GPUs of all nodes; leave out --nodes")


def _read_log(
    log: Path | None, synthetic: str | None, hours: float | None, asked: LogOptions, jobs_like: str
) -> Log:
    """Return the log whose idle nodes are the holes: some hours of a file, or a made-up log."""
    if log is None:
        days = (hours or 24.0) / 24
        return synthetic_log(str(synthetic), days, asked.min_hole_s, asked.gpus_per_node, jobs_like)
    if hours is not None and asked.from_s is not None:
        asked = replace(asked, to_s=asked.from_s + 3600.0 * hours)
    found = read_file(log, asked)
    if hours is not None and asked.from_s is None:  # only the log itself says when it begins
        begin_s, end_s = found.from_s, min(found.to_s, found.from_s + 3600.0 * hours)
        found = read_file(log, replace(asked, from_s=begin_s, to_s=end_s))
    print_notes(found.notes)
    return found


def _read_trace(
    events: Path | None,
    log: Log | None,
    nodes: int | None,
    from_s: float | None,
    hours: float | None,
) -> Trace:
    """Return the replayed part of the events, or of the log's idle nodes."""
    with fail_on(TraceError, begin="--events "):  # it names the file
        found = None if events is None else read_events(events)
    if found is None:
        assert log is not None
        found = trace_of_holes(log.holes, log.from_s, log.to_s)
    said = click.get_current_context().params
    source = next(name for name in ("events", "log", "synthetic") if said[name] is not None)
    with fail_on(TraceError, begin=f"--{source} {said[source]}: "):
        return select(found, nodes, from_s, hours)


def _compare_gpus(
    log: Log | None,
    trainers: tuple[TrainerSpec, ...],
    element_gpus: tuple[tuple[int, ...], ...],
    look_every_s: float,
) -> tuple[GpuUse | None, FreeHours | None, Compared | None]:
    """Return the use of GPUs, and figures of the trainers on whole nodes and on parts of nodes."""
    if log is None or log.free_gpus is None:
        return None, None, None
    compared, gpus = None, log.free_gpus
    with parts_planner(element_gpus) as planner:
        if planner is not None:
            every_s = look_every_s or _LOOK_S
            spans = [(gpus.from_s, gpus.to_s)]
            compared = compare(gpus, spans, trainers, element_gpus, planner, every_s)
    return log.gpu_use, free_hours(gpus), compared


def _with_submit_times(
    listed: tuple[TrainerSpec, ...], path: Path | None, trace: Trace, backlog: bool
) -> tuple[TrainerSpec, ...]:
    """Return the trainers with their submit times; end the command if all come after the trace."""
    if path is None:
        return listed
    if backlog:
        return tuple(replace(one, submit_s=trace.start_s) for one in listed)
    first_s = min(one.submit_s for one in listed)
    if first_s >= trace.end_s:
        fail(
            f"--trainers {path}: the first is submitted at {first_s:.0f}, after the last event "
            f"({trace.end_s:.0f}); --backlog lets all wait from the start"
        )
    return listed


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Silence warnings, which would be one line a plan; greedy plans are counted instead."""
    logger = logging.getLogger("bftrainer_slurm")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
