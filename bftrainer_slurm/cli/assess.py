"""``bftrainer assess``: the worth of a cluster's holes, from its own log."""

from __future__ import annotations

import csv
from dataclasses import replace
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import Any

import click

from bftrainer_slurm.cli.common import BAD_INPUT, INTERRUPTED, fail, print_json, safe
from bftrainer_slurm.cli.files import check_file, check_folder, write_output
from bftrainer_slurm.cli.joblogs import (
    ask_slurm,
    print_notes,
    progress,
    read_file,
    read_listed,
    synthetic_log,
)
from bftrainer_slurm.cli.options import (
    FILE,
    FOLDER,
    count,
    given_options,
    json_option,
    number,
    parse_price,
    refuse_unused,
    time_zone_option,
    unix_time,
)
from bftrainer_slurm.replay.assessment.assess import Assessment, Rates, Replays
from bftrainer_slurm.replay.assessment.assess import assess as assess_log
from bftrainer_slurm.replay.assessment.document import document, table
from bftrainer_slurm.replay.assessment.harvest import SAMPLES, HarvestOptions
from bftrainer_slurm.replay.assessment.report import write_report
from bftrainer_slurm.replay.logs.log import LogOptions
from bftrainer_slurm.replay.trainers import DESCRIPTION

SCHEMA = 1
_STEPS = 1000  # of the bar
_LOG, _SYNTHETIC, _LIVE = "a LOG", "--synthetic", "no LOG"
_GOES_WITH = {
    "days": (_SYNTHETIC, _LIVE),
    "nodes": (_LOG,),
    "node_list": (_LOG,),
    "down": (_LOG,),
    "reservations": (_LOG,),
    "node_types": (_LOG, _LIVE),
    "gpus_per_node": (_LOG, _LIVE),
    "begin": (_LOG,),
    "end": (_LOG,),
}

_REPLAY_OPTIONS = {
    *("trainers", "at_once", "bf_interval", "samples", "sample_hours"),
    *("price", "watts", "csv_file"),
}


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
@click.option(
    "--gpus-per-node",
    help="GPUs of each node that has any. [default: the most that jobs had at once]",
    **count("N", 1, 1000),
)
@click.option(
    "--min-hole", "min_hole_s", help="Leave out shorter holes.", **number("SECONDS", 0, 86400, 1.0)
)
@click.option("--from", "begin", metavar="TIME", help="Leave out what is before: 2024-03-01T12:00.")
@click.option("--to", "end", metavar="TIME", help="Leave out what is after.")
@time_zone_option("weekdays and hours, and of the log's times if they name none")
@click.option(
    "--trainers", type=FILE, help="Replay these trainers. [JSON: docs/internals/files.md]"
)
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
@click.option("--no-replay", is_flag=True, help="Show only the holes; replay nothing.")
@click.option(
    "--price",
    metavar="PRICE",
    callback=parse_price,
    help="Price of a node-hour, with its currency: 2.5EUR. A GPU costs its share of its node.",
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
    no_replay: bool,
    price: tuple[float | None, str],
    watts: float | None,
    csv_file: Path | None,
    name: str,
    report: Path | None,
    as_json: bool,
    **of_log: Any,  # fields of LogOptions
) -> None:
    """Say what a cluster's idle nodes are worth, and how much later ordinary jobs would start.

    LOG is the output of sacct (docs/planner-guide.md has the command), a log in the Standard
    Workload Format, the controller's history.sqlite, or a list of holes; plain or gzipped. Without
    a LOG it asks Slurm's accounting for all jobs of the last --days. The answer is right only if
    you may see the jobs of all users.

    \b
    Examples:
      bftrainer assess --days 28
      bftrainer assess jobs.txt --report report
      bftrainer assess --synthetic 1000:0.9 --days 2
    """
    from_s, to_s = unix_time("--from", begin, zone), unix_time("--to", end, zone)
    options = LogOptions(from_s=from_s, to_s=to_s, zone=zone, **of_log)
    if log is not None and synthetic is not None:
        fail("give either a LOG or --synthetic NODES")
    refuse_unused(_LOG if log else _SYNTHETIC if synthetic else _LIVE, _GOES_WITH)
    _refuse_unused_options(no_replay, report)
    check_file("--csv", csv_file, reads=log)
    check_folder("--report", report)
    planned = tuple(HarvestOptions(count, bf_interval) for count in at_once)
    replays = None if no_replay else _replays(trainers, planned, sample_hours, samples)
    if log is not None:
        source, holes = log.name, read_file(log, options)
    elif synthetic is not None:
        source, holes = "a made-up cluster", synthetic_log(synthetic, days, options.min_hole_s)
    else:
        source, holes = "this cluster", ask_slurm(options, days)
    print_notes(holes.notes)
    with progress("replaying", _STEPS if replays else 0) as bar:
        found = assess_log(
            source,
            holes,
            zone,
            replays,
            lambda share: bar.update(int(_STEPS * share) - bar.pos),
        )
    if found.stopped and not found.replayed:
        fail("Ctrl-C: no sample was finished; --no-replay shows the holes alone", INTERRUPTED)
    found = replace(found, rates=Rates(*price, watts), name=name)
    files_written = [
        write_output("--csv", csv_file, partial(_write_over_time, found)),
        write_output("--report", report, partial(write_report, found)),
    ]
    _print(found, report if files_written[-1] else None, as_json)
    if found.stopped:
        click.echo(f"note: {found.stopped}", err=True)
        raise SystemExit(INTERRUPTED)
    if not all(files_written):
        raise SystemExit(BAD_INPUT)


def _refuse_unused_options(no_replay: bool, report: Path | None) -> None:
    options = given_options()
    if no_replay and (unused := _REPLAY_OPTIONS & options.keys()):
        option = options[min(unused)]
        fail(f"{option} is about what is replayed; leave out either it or --no-replay")
    if report is None and "name" in options:
        fail("--name goes with --report only; leave it out")


def _write_over_time(found: Assessment, path: Path) -> None:
    """Write the numbers of idle and used nodes over time (Unix seconds), in each replay, as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(
            ("trainers", "time", *(f"{of}_{found.unit.lower()}s" for of in ("idle", "used")))
        )
        for one in found.replayed:
            rows.writerows(
                (one.options.at_once, f"{now.time_s:.13g}", now.pool, now.used)
                for now in one.result.moments
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
    from bftrainer_slurm.cli.simulation import harvest  # imports the controller

    wanted = read_listed(trainers, max(one.at_once for one in planned))
    described = DESCRIPTION if trainers is None else f"the {len(wanted):,} of {trainers.name}"
    return Replays(harvest, wanted, described, planned, hours, samples)
