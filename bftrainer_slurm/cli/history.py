"""``bftrainer history``: what trainers had, gained and lost, also those that have ended."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import chain
from statistics import median
from typing import Any

import click

from bftrainer_slurm.cli.chart import draws_blocks, strip
from bftrainer_slurm.cli.common import (
    fact_lines,
    fail_if_unreadable,
    identity,
    print_either,
    safe,
    size_changes,
)
from bftrainer_slurm.cli.endpoint import Endpoint, complete, endpoint_options
from bftrainer_slurm.cli.options import json_option
from bftrainer_slurm.cli.past import A_WEEK_S, Since, history_or_fail, trainer_history
from bftrainer_slurm.cli.show import time_rows
from bftrainer_slurm.cli.terminal import date, table, width
from bftrainer_slurm.slurm.nodelists import fold
from bftrainer_slurm.words import ARE, counted

_HEADING = (
    *("TRAINER", "NAME", "USER", "SUBMITTED", "LAST NODE", "NODE-HOURS"),
    *("GREW", "SHRANK", "RECLAIMED"),
)
_SPARE = tuple(map(_HEADING.index, ("SUBMITTED", "SHRANK", "GREW", "USER", "RECLAIMED")))
_LABEL = 12  # columns


@click.command()
@click.argument("trainer", required=False, shell_complete=complete)
@click.option(
    "--since",
    type=Since(),
    metavar="WHEN",
    help="Begin so long ago, or at this time: 90m, 2h, 7d, 2026-11-23T14:00. [default: the whole "
    "life of TRAINER; of all trainers a week]",
)
@click.option(
    "-n",
    "--last",
    type=click.IntRange(min=0),
    default=20,
    metavar="N",
    help="Show the last N changes of a trainer. [default: 20; with --json all that are kept]",
)
@endpoint_options
@json_option
def history(
    trainer: str | None, since: float | None, last: int, endpoint: Endpoint, as_json: bool
) -> None:
    """Say what TRAINER had, gained and lost. Without TRAINER list all trainers that had nodes.

    The controller keeps the history for 90 days, so you find trainers that have ended, too.
    TRAINER is a job id, or a name that only one trainer had in the last week, or ever. Of other
    users' trainers only the nodes are shown.

    \b
    Examples:
      bftrainer history
      bftrainer history 4711 --since 2h
      bftrainer history resnet --json
    """
    with fail_if_unreadable():
        if trainer is None:
            since_s = time.time() - A_WEEK_S if since is None else since
            document = history_or_fail("all", since_s, endpoint)
            print_either(document, list_lines(document), as_json)
            return
        document = trainer_history(trainer, since or 0.0, endpoint)
        one = document["trainer"]
        print_either(document, chain(fact_lines(_totals(one)), changes(one, last)), as_json)


def list_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Give a line for each trainer."""
    trainers = document["trainers"]
    if not trainers:
        yield f"no trainer had nodes since {date(document['since_s'])}"
        return
    yield from table([_HEADING, *map(_row, trainers)], _SPARE)


def _row(one: Mapping[str, Any]) -> tuple[str, ...]:
    ended = "has nodes" if one["last_s"] is None else date(one["last_s"])
    return (
        str(one["array"]),
        safe(one["name"], 20),
        safe(one["user"], 20),
        date(one["submit_s"]),
        ended,
        f"{one['node_s'] / 3600:.2f}{_part_hours(one)}",
        *(str(one[key]) for key in ("grew", "shrank", "reclaimed")),
    )


def _part_hours(total: Mapping[str, Any]) -> str:
    """Return the GPU-hours of a trainer on nodes that jobs share, in parentheses."""
    seconds = total.get("gpu_s")
    return f" ({seconds / 3600:.2f} GPU-hours)" if seconds else ""


def _totals(one: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield one trainer's totals, with their labels."""
    total, nodes = one["total"], one["course"]["nodes"]
    yield "trainer", identity(one)
    if one.get("over"):
        yield "ended", safe(one["over"], 200)
    yield "submitted", date(one["submit_s"])
    yield "changes", size_changes(total)
    most = max([round(max(nodes)), *(change["nodes"] for change in one["changes"])])
    hours = f"{total['node_s'] / 3600:.2f} node-hours{_part_hours(total)}"
    yield "used", f"{hours}, {counted(most, 'node')} at most"
    yield "shown", f"{date(one['from_s'])} to {date(one['until_s'])}"
    course = strip(nodes, min(60, width() - _LABEL), blocks=draws_blocks())
    yield "nodes", course.rstrip() or "none"
    if one.get("hidden"):
        yield "progress", f"only {safe(one['user'])} sees it"
        return
    if one["samples"]:
        gained = one["samples"][-1]["samples"] - one["samples"][0]["samples"]
        yield "samples", f"{one['samples'][-1]['samples']:,.0f}, {gained:,.0f} of them shown here"
    seconds = [pause["seconds"] for pause in one["rescales"]]
    yield (
        "rescaling",
        "no pause was measured"
        if not seconds
        else (
            f"{counted(len(seconds), 'pause')}, {median(seconds):.2f} s in the median, "
            f"{max(seconds):.2f} s at most, {sum(seconds):.1f} s in all"
        ),
    )
    yield from time_rows(one)


def changes(one: Mapping[str, Any], last: int) -> Iterator[str]:
    """Give the last changes of one trainer's nodes, and its pauses, as a table."""
    rows = _events(one)
    if not rows or not last:
        return
    left_out = one["earlier_changes"] + len(rows) - len(rows[-last:])
    yield ""
    yield from table([("TIME", "NODES", "WHAT"), *rows[-last:]])
    if left_out > 0:
        yield f"{counted(left_out, 'earlier change', ARE)} not shown; see -n and --since"


def _events(one: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return changes of nodes, and pauses, ordered by time."""
    events = [
        (change["time_s"], str(change["nodes"]), _change_text(change)) for change in one["changes"]
    ]
    events += [
        (pause["time_s"], str(pause["nodes"]), f"trains again after {pause['seconds']:.2f} s")
        for pause in one.get("rescales", ())
    ]
    return [(date(time_s), nodes, text) for time_s, nodes, text in sorted(events)]


def _change_text(change: Mapping[str, Any]) -> str:
    ways = (("gained", "+", ""), ("lost", "-", ""), ("reclaimed", "-", " reclaimed"))
    return ", ".join(
        f"{sign}{len(change[way])} {safe(fold(change[way]), 200)}{remark}"
        for way, sign, remark in ways
        if change[way]
    )
