"""``bftrainer assess``: the worth of a cluster's holes, from its own log."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, tzinfo
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow
from pyarrow import csv, parquet

from bftrainer_slurm.cli.common import BAD_INPUT, fail, fail_on, print_json, safe
from bftrainer_slurm.cli.files import check_file, check_folder, write_output
from bftrainer_slurm.cli.gpus import (
    check_gpus,
    check_jobs_like,
    element_gpus_option,
    gpus_per_node_option,
    jobs_like_option,
    parts_planner,
)
from bftrainer_slurm.cli.joblogs import ask_slurm, print_notes, progress, read_file, synthetic_log
from bftrainer_slurm.cli.options import (
    FILE,
    FOLDER,
    count,
    given_options,
    json_option,
    number,
    time_zone_option,
)
from bftrainer_slurm.replay.assessment.assess import Assessment, Rates, Replays
from bftrainer_slurm.replay.assessment.assess import assess as assess_log
from bftrainer_slurm.replay.assessment.document import document, table
from bftrainer_slurm.replay.assessment.harvest import SAMPLES, Harvest, HarvestOptions
from bftrainer_slurm.replay.assessment.report import write_report
from bftrainer_slurm.replay.logs.log import LogOptions
from bftrainer_slurm.replay.trainers import (
    DESCRIPTION,
    TrainersError,
    read_trainers,
    typical_trainers,
)

SCHEMA = 1
_DATE_DIGITS = 8  # 20240301 is a date: as Unix seconds it would be in 1970
_LOG, _SYNTHETIC, _LIVE = "a LOG", "--synthetic", "no LOG"
_GOES_WITH = {
    "days": (_SYNTHETIC, _LIVE),
    "nodes": (_LOG,),
    "node_list": (_LOG,),
    "down": (_LOG,),
    "reservations": (_LOG,),
    "node_types": (_LOG, _LIVE),
    "jobs_like": (_SYNTHETIC,),
    "cpus_per_node": (_LOG,),
    "begin": (_LOG,),
    "end": (_LOG,),
}

_REPLAY_OPTIONS = {
    *("trainers", "at_once", "bf_interval", "samples", "sample_hours"),
    *("price", "watts", "csv_file", "parquet_file", "element_gpus"),
}


def _parse_price(
    _: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[float | None, str]:
    """Return a number and its currency, "" without one."""
    if text is None:
        return None, ""
    read = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?) ?([^\W\d_]{0,12}|[^\w\s<>&])", text)
    if read is None:
        raise click.BadParameter(f"{safe(text)} is not a price such as 2.5EUR", param=parameter)
    return float(read[1]), read[2]


@click.command()
@click.argument("log", type=FILE, required=False)
@click.option(
    "--synthetic", metavar="NODES[:LOAD[:SEED]]", help="Use a made-up cluster in place of a log."
)
@click.option(
    "--days",
    help="How long the made-up cluster runs, or how far back to ask Slurm's accounting.",
    **number("DAYS", 0, 400, 7.0, min_open=True),
)
@click.option(
    "--nodes",
    help="How many nodes the machine has, if the log has no node names.",
    **count("N", 1, 200_000),
)
@click.option("--node-list", default="", metavar="LIST", help="Use these nodes only: n[1-300].")
@click.option(
    "--down",
    type=FILE,
    help="When nodes were down, from sacctmgr show event. Only for logs with node lists.",
)
@click.option(
    "--reservations",
    type=FILE,
    help="When nodes were reserved, from sacctmgr show reservation. Only for logs with node lists.",
)
@click.option(
    "--node-types",
    type=FILE,
    help="Types of the nodes: lines with a node list and a type, from sinfo.",
)
@gpus_per_node_option
@jobs_like_option
@click.option(
    "--cpus-per-node",
    help="Count CPUs, because jobs share nodes; each node has this many. "
    "Only for logs without node lists.",
    **count("N", 1, 100_000),
)
@click.option(
    "--min-hole", "min_hole_s", help="Leave out shorter holes.", **number("SECONDS", 0, 86400, 1.0)
)
@click.option("--from", "begin", metavar="TIME", help="Leave out what is before: 2024-03-01T12:00.")
@click.option("--to", "end", metavar="TIME", help="Leave out what is after.")
@time_zone_option("weekdays and hours, and of the log's times if they name none")
@click.option("--trainers", type=FILE, help="Replay these trainers. [JSON: 'bftrainer help files']")
@click.option(
    "--at-once",
    multiple=True,
    help="How many trainers there are at a time. You can give this option several times.",
    **count("N", 1, 1000, (10,)),
)
@click.option(
    "--bf-interval",
    help="Time between passes of backfill: bf_interval in slurm.conf.",
    **number("SECONDS", 1, 3600, 30.0),
)
@click.option(
    "--samples", help="How many parts of the log to replay.", **count("N", 1, 1000, SAMPLES)
)
@click.option(
    "--sample-hours",
    help="How long each of these parts is. [default: 12, or less if much happens]",
    **number("HOURS", 0, 24 * 400, min_open=True),
)
@element_gpus_option
@click.option("--no-replay", is_flag=True, help="Show only the holes; replay nothing.")
@click.option(
    "--price",
    metavar="PRICE",
    callback=_parse_price,
    help="Price of a node-hour, with its currency: 2.5EUR.",
)
@click.option(
    "--watts",
    help="How many watts more a node draws when it trains than when it is idle.",
    **number("WATTS", 0, 1e6),
)
@click.option(
    "--csv",
    "csv_file",
    type=FILE,
    metavar="FILE",
    help="Write idle and used nodes over time, for each replayed part.",
)
@click.option(
    "--parquet", "parquet_file", type=FILE, metavar="FILE", help="Write the same as parquet."
)
@click.option(
    "--name",
    metavar="NAME",
    default="this cluster",
    show_default=True,
    help="Name of the cluster or centre, for the report's title.",
)
@click.option(
    "--report",
    type=FOLDER,
    metavar="DIR",
    help="Write assessment.html and assessment.json into DIR.",
)
@json_option
def assess(
    log: Path | None,
    synthetic: str | None,
    days: float,
    begin: str | None,
    end: str | None,
    zone: tzinfo,
    trainers: Path | None,
    at_once: tuple[int, ...],
    bf_interval: float,
    samples: int,
    sample_hours: float | None,
    element_gpus: tuple[tuple[int, ...], ...],
    jobs_like: str,
    no_replay: bool,
    price: tuple[float | None, str],
    watts: float | None,
    csv_file: Path | None,
    parquet_file: Path | None,
    name: str,
    report: Path | None,
    as_json: bool,
    **of_log: Any,  # fields of LogOptions
) -> None:
    """Say what a cluster's idle nodes are worth, and how much later ordinary jobs would start.

    LOG is the output of sacct ('bftrainer help planner-guide' has it), a log in the Standard
    Workload Format, the controller's history.sqlite, or a list of holes; plain or gzipped. Without
    a LOG it asks Slurm's accounting for all jobs of the last --days. The answer is right only if
    you may see the jobs of all users.

    \b
    Examples:
      bftrainer assess --days 28
      bftrainer assess jobs.txt --report report
      bftrainer assess --synthetic 1000:0.9 --days 2
      bftrainer assess --synthetic 50 --gpus-per-node 8 --element-gpus 1 --element-gpus 4
    """
    from_s, to_s = _parse_time("--from", begin, zone), _parse_time("--to", end, zone)
    options = LogOptions(from_s=from_s, to_s=to_s, zone=zone, **of_log)
    if log is not None and synthetic is not None:
        fail("give either a LOG or --synthetic NODES")
    _refuse_unused_options(_LOG if log else _SYNTHETIC if synthetic else _LIVE, no_replay, report)
    if csv_file is not None and csv_file == parquet_file:
        fail("--csv and --parquet name the same file")
    check_file("--csv", csv_file, reads=log)
    check_file("--parquet", parquet_file, reads=log)
    check_folder("--report", report)
    planned = tuple(HarvestOptions(count, bf_interval) for count in at_once)
    replays = None if no_replay else _replays(trainers, planned, sample_hours, samples)
    check_jobs_like(options.gpus_per_node)
    if log is not None:
        source, holes = log.name, read_file(log, options)
    elif synthetic is not None:
        gpus = options.gpus_per_node
        holes = synthetic_log(synthetic, days, options.min_hole_s, gpus, jobs_like)
        source = "a made-up cluster"
    else:
        source, holes = "this cluster", ask_slurm(options, days)
    print_notes(holes.notes)
    check_gpus(holes, element_gpus)
    with parts_planner(element_gpus) as planner:
        if replays is not None:
            replays = replace(replays, element_gpus=element_gpus, planner=planner)
        rounds = len(planned) + replays.in_parts if replays else 0
        with progress("replaying", rounds * samples) as bar:
            found = assess_log(source, holes, zone, replays, bar.update)
    found = replace(found, rates=Rates(*price, watts), name=name)
    over_time = _over_time(found)
    files_written = [
        write_output("--csv", csv_file, partial(_write, over_time, csv.write_csv)),
        write_output("--parquet", parquet_file, partial(_write, over_time, parquet.write_table)),
        write_output("--report", report, partial(write_report, found)),
    ]
    _print(found, report if files_written[-1] else None, as_json)
    if not all(files_written):
        raise SystemExit(BAD_INPUT)


def _refuse_unused_options(place: str, no_replay: bool, report: Path | None) -> None:
    """Refuse options that would change nothing; ``place`` is where the jobs come from."""
    for name, option in given_options().items():
        goes_with = _GOES_WITH.get(name, (place,))
        if place not in goes_with:
            fail(f"{option} goes with {' or '.join(goes_with)} only; leave it out")
        if no_replay and name in _REPLAY_OPTIONS:
            fail(f"{option} is about what is replayed; leave out either it or --no-replay")
        if report is None and name == "name":
            fail("--name goes with --report only; leave it out")


def _write(table: pyarrow.Table, write: Callable[..., None], path: Path) -> None:
    with path.open("wb") as file:  # pyarrow would remove a path that it cannot write
        write(table, file)


def _over_time(found: Assessment) -> pyarrow.Table:
    """Return the numbers of idle and used nodes over time (Unix seconds), in each replay."""
    rows = [
        (one.options.at_once, round(now.time_s, 3), now.pool, now.used)
        for one in found.replayed
        for now in one.result.moments
    ]
    columns = np.array(rows, float).reshape(-1, 4).T
    types = {"trainers": int, "time": float, "idle_nodes": int, "used_nodes": int}
    return pyarrow.table(
        {name: one.astype(type_) for one, (name, type_) in zip(columns, types.items(), strict=True)}
    )


def _print(found: Assessment, report: Path | None, as_json: bool) -> None:
    if as_json:
        print_json({"schema": SCHEMA, **document(found)})
        return
    click.echo(table(found))
    for caveat in found.log.caveats:
        click.echo(f"note: {caveat}", err=True)
    if report is not None:
        click.echo(f"report: {safe(report / 'assessment.html', 400)}")


def _replays(
    trainers: Path | None,
    planned: tuple[HarvestOptions, ...],
    hours: float | None,
    samples: int,
) -> Replays:
    if trainers is None:
        wanted = typical_trainers(max(one.at_once for one in planned))
        described = DESCRIPTION
    else:
        with fail_on(TrainersError, begin="--trainers "):
            wanted = read_trainers(trainers)
        described = f"the {len(wanted):,} of {trainers.name}"
    return Replays(_load_harvest(), wanted, described, planned, hours, samples)


def _load_harvest() -> Harvest:
    from bftrainer_slurm.cli.simulation import harvest  # imports the controller

    return harvest


def _parse_time(option: str, text: str | None, zone: tzinfo) -> float | None:
    if text is None:
        return None
    try:
        if text.isdecimal() and len(text) != _DATE_DIGITS:
            return float(text)
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        fail(f"{option} {safe(text)}: write 2024-03-01, 2024-03-01T12:00 or Unix seconds")
