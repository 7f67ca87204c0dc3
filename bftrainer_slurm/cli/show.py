"""``bftrainer show``: all that is known of one trainer now; ``history`` has its past."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import chain
from typing import Any

import click

from bftrainer_slurm.cli.advice import advice
from bftrainer_slurm.cli.chart import curve
from bftrainer_slurm.cli.common import (
    fact_lines,
    fail_if_unreadable,
    identity,
    print_either,
    safe,
    size_changes,
)
from bftrainer_slurm.cli.endpoint import Endpoint, complete, endpoint_options, find_trainer
from bftrainer_slurm.cli.options import json_option
from bftrainer_slurm.cli.status import current_status
from bftrainer_slurm.cli.tail import folder_exists, last_output
from bftrainer_slurm.cli.terminal import date
from bftrainer_slurm.controller.state.trainer_state import BATCH_SCRIPT
from bftrainer_slurm.reader.sentences import deadline, noise_scale, size_range
from bftrainer_slurm.words import counted, duration

SCHEMA = 1
_ERROR_LINES = 12
# The unit of a curve, by the controller's word. Steps times nodes are only proportional to samples.
_UNITS = {"samples": "samples/s", "steps": "relative", None: "speed-up"}


@click.command()
@click.argument("trainer", shell_complete=complete)
@endpoint_options
@json_option
def show(trainer: str, endpoint: Endpoint, as_json: bool) -> None:
    """Show one trainer. TRAINER is its job id, or its name if no other trainer has that name.

    'bftrainer history' shows its past, 'bftrainer explain' why it has so many nodes.

    \b
    Examples:
      bftrainer show 4711
      bftrainer show resnet --json
    """
    with fail_if_unreadable():
        document = current_status(endpoint)
        one = find_trainer(document, trainer)
        if one.get("error") and (output := last_output(one["array"])):
            one |= {"output": asdict(output)}
        down = document["down"]
        known = [f"{down}; this is what Slurm knows:"] if down else []
        print_either({"schema": SCHEMA, **one, "down": down}, chain(known, lines(one)), as_json)


def lines(one: dict[str, Any]) -> Iterator[str]:
    """Yield all that is known of a trainer."""
    yield from fact_lines(_facts(one))
    known = one.get("curve")
    if known and any(point["measured"] for point in known["points"]):
        yield ""
        yield from curve(known["points"], _UNITS[known["unit"]])
    if said := _last_words(one):
        yield from ("", "its last output:", *(f"  {line}" for line in said[-_ERROR_LINES:]))


def _last_words(one: dict[str, Any]) -> list[str]:
    """Return the error that members of the trainer have reported, or else the end of its output."""
    told: str = one.get("error") or ""
    printed = one.get("output", {}).get("lines", ())
    words = printed if told == BATCH_SCRIPT and printed else told.splitlines()
    return [safe(line, 200) for line in words if line.strip()]


def _facts(one: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "trainer", identity(one)
    yield "state", one["state"] + (f": {safe(one['why'], 400)}" if one.get("why") else "")
    yield from _trouble(one)
    yield "submitted", date(one["submit_s"])
    yield "wants", f"{size_range(one)}, weight {one['weight']:g}"
    if one.get("left_out"):
        yield "left out", safe(one["left_out"], 300)
    if one.get("partitions"):
        yield "partition", f"only nodes of {' or '.join(map(safe, one['partitions']))}"
    if one.get("node_list"):
        yield "node list", f"only {safe(one['node_list'], 200)}"
    yield "grace", f"{one['grace_s']:g} s to end when reclaimed"
    if minutes := one.get("start_minutes"):
        yield "limit", f"{counted(minutes, 'minute')} each start on a node (-t), not in all"
    if one.get("node_hours"):
        yield "ends", f"after {one['node_hours']:g} node-hours"
    if said := deadline(one):
        yield "deadline", said
    if gpus := one.get("gpus"):
        yield "GPUs", f"{gpus} of each of its nodes; other jobs may have the rest"
    yield "nodes", ", ".join(map(safe, one["nodes"])) or "none"
    if one.get("switches"):
        count = one["switches"]
        under = f"{count} switch{'' if count == 1 else 'es'}"
        yield "switches", f"{counted(len(one['nodes']), 'node')} on {under}"
    if one["starting"]:
        yield "starting", ", ".join(map(safe, one["starting"]))
    if "grew" in one:
        yield "changes", size_changes(one)
        yield "used", f"{one['node_s'] / 3600:.2f} node-hours"
    yield from time_rows(one)
    if one.get("launcher"):
        yield "launcher", safe(one["launcher"])
    if one.get("rescale"):
        costs = one["rescale"]
        yield "rescaling", f"up {_cost(costs['up'])}, down {_cost(costs['down'])}"
    if one.get("page"):  # the link shows all of the user's trainers
        yield "page", safe(one["page"], 400)
    if one.get("hidden"):
        yield "progress", f"only {safe(one['user'])} sees it"
    yield from _progress(one)


def _trouble(one: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong, and what to do about it: users look for that first."""
    if one.get("notice"):
        yield "notice", safe(one["notice"], 400)
    if one.get("failures"):
        nodes = f", on {', '.join(map(safe, one['failed_on']))}" if one["failed_on"] else ""
        yield "failed", f"{counted(one['failures'], 'time')} in a row{nodes}"
    if remedy := advice(_last_words(one)):
        yield "try", remedy
    if one.get("output"):
        path = one["output"]["path"]
        missing = "" if folder_exists(path) else " (that folder is not there: mkdir -p it)"
        yield "output", safe(path, 400) + missing


def _progress(one: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if one.get("samples") is not None:
        rate = one["samples_per_s"]
        yield "samples", f"{one['samples']:,.0f}" + (f", {rate:,.0f} a second" if rate else "")
    elif one.get("steps") is not None:
        yield "steps", f"{one['steps']:,.0f}, of an unknown number of samples"
    if said := noise_scale(one):
        yield "noise scale", said
    yield from ((safe(name), f"{value:.4g}") for name, value in one.get("measures", {}).items())
    if one.get("refused_reports"):
        yield "refused", f"{counted(one['refused_reports'], 'impossible report')} of progress"


def time_rows(one: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield how a trainer spent its time, and the shares of its time with nodes.

    Of a trainer that reports nothing only the waiting and the time with nodes are known.
    """
    spent = one.get("goodput")
    if not spent:
        return
    reports, with_nodes_s = spent["trained_s"] is not None, spent["with_nodes_s"]
    kinds = ("trained", "waiting", "rescaling", "lost") if reports else ("waiting", "with nodes")
    times = [f"{kind} {duration(spent[kind.replace(' ', '_') + '_s'])}" for kind in kinds]
    yield "time", ", ".join(times)
    if not reports or not with_nodes_s:
        return
    again_s = spent.get("again_s") or 0.0
    restarts_s = spent["rescaling_s"] + spent["lost_s"] - again_s
    good, again, restarts = (
        f"{part / with_nodes_s:.0%}" for part in (spent["trained_s"], again_s, restarts_s)
    )
    shares = f"{again} trained again, {restarts} starts and restarts"
    yield "goodput", f"{good} of the time with nodes: {shares}"


def _cost(cost: dict[str, Any]) -> str:
    how = f"{cost['count']} measured" if cost["count"] else "assumed"
    return f"{cost['seconds']:.2f} s ({how})"
