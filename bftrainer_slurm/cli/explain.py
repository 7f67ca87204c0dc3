"""``bftrainer explain``: why a trainer has so many nodes, or waits, in the plan's own terms."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import click

from bftrainer_slurm.cli.common import fail_if_unreadable, identity, print_either, safe
from bftrainer_slurm.cli.endpoint import Endpoint, complete, endpoint_options, find_trainer
from bftrainer_slurm.cli.options import json_option
from bftrainer_slurm.cli.status import current_status
from bftrainer_slurm.cli.terminal import wrapped
from bftrainer_slurm.reader.sentences import amount, reasons, size_of, standing, unit_of
from bftrainer_slurm.words import number

SCHEMA = 1


@click.command()
@click.argument("trainer", shell_complete=complete)
@endpoint_options
@json_option
def explain(trainer: str, endpoint: Endpoint, as_json: bool) -> None:
    """Say why TRAINER has as many nodes as it has, or why it waits.

    The words and numbers are those of the controller's last plan: what the trainer asked for, which
    nodes there are, what more nodes would bring it, what a change of size costs, and what others
    would lose. TRAINER is a job id, or a name that only one trainer has. The plan's terms of
    other users' trainers are not shown.

    \b
    Examples:
      bftrainer explain 4711
      bftrainer explain resnet --json
    """
    with fail_if_unreadable():
        document = current_status(endpoint)
        one = find_trainer(document, trainer)
        print_either(as_document(one, document), lines(one, document, time.time()), as_json)


def as_document(one: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known reasons as JSON has them; the schema is in docs/internals/json.md."""
    kept = (
        *("array", "name", "user", "state", "why", "min_nodes", "max_nodes", "sizes", "step"),
        *("gpus", "nodes", "starting", "deadline"),
    )
    pool = document["pool"]
    return {
        "schema": SCHEMA,
        "down": document["down"],
        **{key: one.get(key) for key in kept},
        "pool": pool and {**pool, "left_alone": document.get("left_alone", {})},
        "barred": [*(document.get("barred") or ()), *(one.get("barred") or ())],
        "plan": one.get("plan"),
        "reasons": reasons(one, document),
    }


def lines(one: Mapping[str, Any], document: Mapping[str, Any], now_s: float) -> Iterator[str]:
    """Return the lines for people."""
    yield f"trainer {identity(one)}: {standing(one)}"
    if one.get("notice"):
        yield from wrapped(f"{safe(one['notice'], 400)}.", 2)
    for reason in reasons(one, document):
        yield from wrapped(safe(reason, 500), 2)
    plan = one.get("plan")
    if not plan:
        return
    yield ""
    yield f"{unit_of(plan) + 's':>7}{'brings':>12}{'rescaling':>12}{'worth':>12}"
    for size in plan["sizes"]:
        mark = "  <- the plan" if size["nodes"] == plan["nodes"] else ""
        brings = plan["forward_s"] * size["rate"]
        cells = (brings, -size["rescale"] or 0.0, size["worth"])
        yield (
            f"{amount(plan, size['nodes']):>7}"
            + "".join(f"{number(cell):>12}" for cell in cells)
            + mark
        )
    ago_s = max(0.0, now_s - plan["time_s"])
    remark = (
        f"unit: the objective times seconds, over the {plan['forward_s']:.0f} s that a plan looks "
        f"ahead; planned {ago_s:.0f} s ago, when it had {size_of(plan, plan['had'])}"
    )
    yield from wrapped(remark, 2)
