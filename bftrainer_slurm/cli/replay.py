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

from bftrainer_slurm.cli.common import BAD_INPUT, fail, fail_on, print_either, safe
from bftrainer_slurm.cli.files import check_folder, write_output
from bftrainer_slurm.cli.holes import LOG, read_holes
from bftrainer_slurm.cli.joblogs import progress, read_listed
from bftrainer_slurm.cli.options import (
    FILE,
    FOLDER,
    count,
    json_option,
    number,
    refuse_unused,
    time_zone_option,
)
from bftrainer_slurm.cli.simulation import POLICIES, ReplayOptions, TimedPlanner
from bftrainer_slurm.cli.simulation import replay as replay_trace
from bftrainer_slurm.planner.objectives import ObjectiveError, find
from bftrainer_slurm.planner.problem import Plan
from bftrainer_slurm.planner.solver import Planner
from bftrainer_slurm.replay.cluster import Moment
from bftrainer_slurm.replay.drive import Timeline
from bftrainer_slurm.replay.figures import document
from bftrainer_slurm.replay.figures import rows as rows_of
from bftrainer_slurm.replay.logs.log import LogOptions
from bftrainer_slurm.replay.trace import Trace
from bftrainer_slurm.replay.trainers import TrainerSpec
from bftrainer_slurm.words import counted

SCHEMA = 1
_MOST = 10_000
_GOES_WITH = {"zone": (LOG,)}


@click.command()
@click.option(
    "--events",
    type=FILE,
    help="Node events: parquet or CSV with the columns time, node, idle; plain or gzipped.",
)
@click.option(
    "--synthetic", metavar="NODES[:LOAD[:SEED]]", help="Use the holes of a made-up cluster instead."
)
@click.option(
    "--trainers",
    type=FILE,
    help="Trainers in JSON: docs/internals/files.md. [default: made-up ones that never end]",
)
@click.option(
    "--log",
    type=FILE,
    help="Use the idle nodes of a centre's log instead, as 'bftrainer assess' reads it.",
)
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
    help="What plans maximise: speedup, throughput, goodput or efficiency, each with +finish, "
    "+fairness or both.",
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
      bftrainer replay --log jobs.txt --policy equal-share
      bftrainer replay --events week1.parquet --trainers hpo.json --nodes 1024 --json
    """
    options = ReplayOptions(**how)
    with fail_on(ObjectiveError, begin="--objective: "):
        find(options.objective)
    listed = read_listed(trainers, options.at_once)
    source, said = _source(events=events, log=log, synthetic=synthetic)
    trace, caveats = read_holes(source, said, LogOptions(zone=zone, from_s=from_s), hours, nodes)
    wanted = _with_submit_times(listed, trainers, trace, backlog) * repeat
    check_folder("--report", report)
    timeline = Timeline()
    unproven: dict[str, list[str]] = {}  # why, by the plans' status

    def judge(plan: Plan, _: float) -> None:
        if plan.status != "optimal":
            unproven.setdefault(plan.status, []).append(plan.reason)

    length = max(1, int(trace.end_s - trace.start_s))
    with _without_warnings(), Planner() as planner, progress("replaying", length) as bar:
        planner.warm_up()

        def watch(moment: Moment) -> None:
            timeline.add(moment)
            bar.update(int(moment.time_s - trace.start_s) - bar.pos)

        found = replay_trace(trace, wanted, options, TimedPlanner(planner, judge), watch)
    for status, reasons in unproven.items():
        why = reasons[-1] or "not proven the best in the time for it"
        click.echo(f"note: {counted(len(reasons), f'{status} plan')}: {why}", err=True)
    if found.outcome.trainers_done == len(wanted):
        click.echo("note: all trainers ended too early, so U says little; see --repeat", err=True)
    figures, rows = document(found), rows_of(found)
    lines = (f"{name:<19}{text}" for name, text in rows)
    print_either({"schema": SCHEMA, **figures}, lines, as_json)
    for caveat in caveats:
        click.echo(f"note: {caveat}", err=True)
    if report is not None:
        from bftrainer_slurm.replay.page import write_page  # imports matplotlib

        seen, span_s = timeline.moments, (trace.start_s, trace.end_s)
        write = partial(write_page, document=figures, rows=rows, moments=seen, span_s=span_s)
        if not write_output("--report", report, write):
            raise SystemExit(BAD_INPUT)
        click.echo(f"report: {safe(report / 'replay.html', 400)}", err=True)


def _source(**given: Path | str | None) -> tuple[str, Path | str]:
    """Return the option that names the holes, and its value; refuse what would change nothing."""
    named = [(f"--{name}", value) for name, value in given.items() if value is not None]
    if len(named) != 1:
        fail("give either --events FILE, --log FILE or --synthetic NODES")
    ((source, said),) = named
    refuse_unused(source, _GOES_WITH)
    return source, said


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
    """Silence warnings, one line a plan; plans that are not proven are counted instead."""
    logger = logging.getLogger("bftrainer_slurm")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
