"""``bftrainer show``: all that is known of one trainer."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from bftrainer_slurm.cli.common import (
    fail,
    json_option,
    keeper_option,
    print_json,
    shown,
    state_option,
)
from bftrainer_slurm.cli.status import current_status


@click.command()
@click.argument("trainer")
@state_option
@keeper_option
@json_option
def show(trainer: str, state: Path | None, address: str | None, as_json: bool) -> None:
    """Show one TRAINER: its job id, or its name where only one has it.

    \b
    Examples:
      bftrainer show 4711
      bftrainer show resnet --json
    """
    document = current_status(state, address)
    found = [one for one in document["trainers"] if trainer in (str(one["array"]), one["name"])]
    if not found:
        fail(f"no trainer '{shown(trainer)}'; 'bftrainer status' lists them all")
    if len(found) > 1:
        ids = ", ".join(str(one["array"]) for one in found)
        fail(f"{len(found)} trainers are named '{shown(trainer)}'; say which: {ids}")
    if as_json:
        print_json(found[0] | {"down": document["down"]})
        return
    if document["down"]:
        click.echo(f"{document['down']}; this is what Slurm knows:")
    click.echo("\n".join(f"{label:<12}{value}" for label, value in _facts(found[0])))


def _facts(one: dict[str, Any]) -> list[tuple[str, str]]:
    waited = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one["submit_s"]))
    facts = [
        ("trainer", f"{one['array']} {shown(one['name'])} of {shown(one['user'])}"),
        ("state", one["state"] + (f": {shown(one['why'])}" if one.get("why") else "")),
        ("submitted", waited),
        ("wants", f"{one['min_nodes']} to {one['max_nodes']} nodes, weight {one['weight']:g}"),
        ("grace", f"{one['grace_s']:g} s to end in when reclaimed"),
        ("nodes", ", ".join(map(shown, one["nodes"])) or "none"),
    ]
    if one["starting"]:
        facts.append(("starting", ", ".join(map(shown, one["starting"]))))
    if "grew" in one:
        facts += [
            (
                "changes",
                f"grew {one['grew']}, shrank {one['shrank']}, reclaimed {one['reclaimed']} times",
            ),
            ("used", f"{one['node_s'] / 3600:.2f} node-hours"),
        ]
    if one.get("samples") is not None:
        rate = one["samples_per_s"]
        facts.append(
            ("samples", f"{one['samples']:,.0f}" + (f", {rate:,.0f} a second" if rate else ""))
        )
        facts += [(shown(name), f"{value:.4g}") for name, value in one["measures"].items()]
    return facts
