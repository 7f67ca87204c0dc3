"""``bftrainer show``: all that is known of one trainer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from bftrainer_slurm.cli.advice import advice
from bftrainer_slurm.cli.chart import draws_blocks
from bftrainer_slurm.cli.common import (
    changes,
    fail,
    fail_where_unreadable,
    print_json,
    print_lines,
    safe_lines,
    shown,
    who,
)
from bftrainer_slurm.cli.options import json_option
from bftrainer_slurm.cli.output import last_output
from bftrainer_slurm.cli.past import Since, past_of
from bftrainer_slurm.cli.picture import SUFFIXES, in_terminal, written
from bftrainer_slurm.cli.plot import Point, plot
from bftrainer_slurm.cli.side import Side, side_options
from bftrainer_slurm.cli.status import current_status
from bftrainer_slurm.cli.terminal import date, width
from bftrainer_slurm.cli.trainers import complete, the_one
from bftrainer_slurm.controller.state.trainer_state import BATCH_SCRIPT
from bftrainer_slurm.planner.limit import Limit

SCHEMA = 1
_ERROR_LINES = 12
_COST, _NO_GAIN = Limit.COST.value, Limit.NO_GAIN.value
_IN_SECONDS = 60.0  # a longer time is shown as H:MM:SS
# What a curve counts, as the controller says it. Steps times nodes: only proportional to samples.
_UNITS = {"samples": "samples/s", "steps": "relative", None: "speed-up"}


@click.command()
@click.argument("trainer", shell_complete=complete)
@side_options
@json_option
@click.option(
    "--plot",
    "picture",
    is_flag=False,
    flag_value="-",
    metavar="[FILE]",
    help="Draw nodes, samples, reclaims and pauses over time: FILE.png, FILE.html, or '-' for the "
    "terminal.",
)
@click.option(
    "--since", type=Since(), metavar="WHEN", help="With --plot: begin so long ago, 2h or 7d."
)
def show(trainer: str, side: Side, as_json: bool, picture: str | None, since: float | None) -> None:
    """Show one trainer. TRAINER is its job id, or its name if no other trainer has that name.

    --plot also draws a trainer that ended long ago; 'bftrainer history' has the numbers.

    \b
    Examples:
      bftrainer show 4711
      bftrainer show resnet --json
      bftrainer show 4711 --plot
      bftrainer show 4711 --plot story.png --since 2h
    """
    if picture is None and since is not None:
        fail("--since goes with --plot; 'bftrainer history' has it too")
    if picture is not None and as_json:
        fail("--plot or --json, not both; 'bftrainer history --json' has what is drawn")
    if picture is not None:
        _draw(trainer, picture, since or 0.0, side)
        return
    with fail_where_unreadable():
        document = current_status(side)
        one = the_one(document["trainers"], trainer)
        if one.get("error") and (output := last_output(one["array"])):
            one |= {"output": asdict(output)}
        if as_json:
            print_json({"schema": SCHEMA, **one, "down": document["down"]})
            return
        if document["down"]:
            click.echo(safe_lines(f"{document['down']}; this is what Slurm knows:"))
        click.echo(safe_lines(render(one)))


def _draw(trainer: str, picture: str, since_s: float, side: Side) -> None:
    """Draw a trainer's past, on the terminal or into a file."""
    path = None if picture == "-" else Path(picture)
    if path is not None and path.suffix.lower() not in SUFFIXES:
        fail(f"--plot '{shown(picture)}': its name must end in .png or .html, or be '-'")
    with fail_where_unreadable():
        one = past_of(trainer, since_s, side)["trainer"]
        if path is None:
            print_lines(in_terminal(one, width(), blocks=draws_blocks()))
            return
        try:
            written(one, path)
        except OSError as error:
            fail(f"{shown(picture, 200)}: {error.strerror}")
        click.echo(f"wrote {shown(picture, 200)}")


def render(one: dict[str, Any]) -> str:
    """Return all that is known of a trainer, in lines."""
    lines = [f"{label:<12}{value}" for label, value in _facts(one)]
    curve = one.get("curve")
    if curve and any(point["measured"] for point in curve["points"]):
        lines += ["", *_curve(curve)]
    if said := _last_words(one):
        lines += ["", "its last output:", *(f"  {line}" for line in said[-_ERROR_LINES:])]
    return "\n".join(lines)


def _last_words(one: dict[str, Any]) -> list[str]:
    """What members of the trainer have reported, or else the end of its output."""
    told: str = one.get("error") or ""
    printed = one.get("output", {}).get("lines", ())
    words = printed if told == BATCH_SCRIPT and printed else told.splitlines()
    return [shown(line, 200) for line in words if line.strip()]


def _facts(one: dict[str, Any]) -> list[tuple[str, str]]:
    state = one["state"] + (f": {shown(one['why'], 200)}" if one.get("why") else "")
    facts = [("trainer", who(one)), ("state", state), *_trouble(one)]
    facts += [
        ("submitted", date(one["submit_s"])),
        ("wants", f"{one['min_nodes']} to {one['max_nodes']} nodes, weight {one['weight']:g}"),
        ("grace", f"{one['grace_s']:g} s to end when reclaimed"),
        ("nodes", ", ".join(map(shown, one["nodes"])) or "none"),
    ]
    if one["starting"]:
        facts.append(("starting", ", ".join(map(shown, one["starting"]))))
    if "grew" in one:
        facts += [
            ("changes", changes(one)),
            ("used", f"{one['node_s'] / 3600:.2f} node-hours"),
        ]
    if one.get("goodput"):
        facts.append(("time", times(one["goodput"])))
    if "runtime" in one:
        facts.append(("rendezvous", one["runtime"] or "not known yet"))
    if one.get("rescale"):
        costs = [f"{way} {_cost(one['rescale'][way])}" for way in ("up", "down")]
        facts.append(("rescaling", ", ".join(costs)))
    if growing := _growing(one):
        facts.append(("growing", growing))
    if one.get("page"):  # the link shows all of the user's trainers
        facts.append(("page", shown(one["page"], 400)))
    if one.get("hidden"):
        facts.append(("progress", f"only {shown(one['user'])} sees it"))
    return facts + _progress(one)


def _trouble(one: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Give what is wrong, and what to do about it: users look for that first."""
    if one.get("notice"):
        yield "notice", shown(one["notice"], 200)
    if one.get("failures"):
        nodes = f", on {', '.join(map(shown, one['failed_on']))}" if one["failed_on"] else ""
        yield "failed", f"{one['failures']} times in a row{nodes}"
    if remedy := advice(_last_words(one)):
        yield "try", remedy
    if one.get("output"):
        yield "output", shown(one["output"]["path"], 400)


def _progress(one: dict[str, Any]) -> list[tuple[str, str]]:
    facts = []
    if one.get("samples") is not None:
        rate = one["samples_per_s"]
        facts.append(
            ("samples", f"{one['samples']:,.0f}" + (f", {rate:,.0f} a second" if rate else ""))
        )
    elif one.get("steps") is not None:
        facts.append(("steps", f"{one['steps']:,.0f}, of an unknown number of samples"))
    facts += [(shown(name), f"{value:.4g}") for name, value in one.get("measures", {}).items()]
    if one.get("refused_reports"):
        facts.append(("refused", f"{one['refused_reports']} impossible reports of progress"))
    return facts


def _growing(one: dict[str, Any]) -> str:
    """Say what keeps it from growing onto idle nodes; ``bftrainer explain`` says more."""
    plan = one.get("plan")
    if plan and plan["limit"] == _COST:
        up_s = one["rescale"]["up"]["seconds"]
        return f"costs {up_s:.1f} s, gains less within {plan['forward_s']:.0f} s"
    return "more nodes would not make it faster" if plan and plan["limit"] == _NO_GAIN else ""


def times(spent: dict[str, Any]) -> str:
    """Where a trainer's time went; if it reports nothing, only when it had nodes is known."""
    waited = f"waiting {_duration(spent['waiting_s'])}"
    if spent["trained_s"] is None:
        return f"{waited}, with nodes {_duration(spent['with_nodes_s'])}"
    names = {"trained": "trained_s", "rescaling": "rescaling_s", "lost": "lost_s"}
    parts = [f"{name} {_duration(spent[key])}" for name, key in names.items()]
    good = spent["trained_s"] / spent["with_nodes_s"] if spent["with_nodes_s"] else 0.0
    return f"{', '.join([parts[0], waited, *parts[1:]])}: {good:.0%} of the time with nodes"


def _duration(seconds: float) -> str:
    if seconds < _IN_SECONDS:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def _cost(cost: dict[str, Any]) -> str:
    how = f"{cost['count']} measured" if cost["count"] else "assumed"
    return f"{cost['seconds']:.2f} s ({how})"


def _curve(curve: dict[str, Any]) -> list[str]:
    points = [Point(one["nodes"], one["rate"], one["measured"]) for one in curve["points"]]
    return plot(points, _UNITS[curve["unit"]])
