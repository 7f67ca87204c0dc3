"""The command line of ``scripts/bench-planner``: what is measured, and how long."""

from __future__ import annotations

import json
import sys
from functools import partial

import click

from bftrainer_slurm.planner.solver import Planner
from scripts.benchmark.apart import NodeLevel
from scripts.benchmark.document import document
from scripts.benchmark.instances import made, made_with_classes
from scripts.benchmark.machine import this_machine
from scripts.benchmark.measure import Comparison, Kind, Series, Size, compare, fresh, stream
from scripts.benchmark.table import tables

SIZES = (Size(5, 16), Size(10, 16), Size(10, 32), Size(10, 64), Size(10, 128))
# A kind of problem that is to be measured, with classes of nodes say, is one more entry here.
KINDS = (
    Kind("10x64", partial(made, 10, 64)),
    Kind("10x128", partial(made, 10, 128)),
    Kind("100x1,000", partial(made, 100, 1_000)),
    Kind("100x1,000 smooth", partial(made, 100, 1_000, measured=False)),
    Kind("100x5,000", partial(made, 100, 5_000), target_p95_s=0.5),
    Kind("100x5,000 smooth", partial(made, 100, 5_000, measured=False), target_p95_s=0.5),
    Kind("300x10,000", partial(made, 300, 10_000)),
    Kind("300x10,000 smooth", partial(made, 300, 10_000, measured=False)),
    Kind("300x10,000 8 classes", partial(made_with_classes, 300, 10_000), target_p95_s=2.0),
)
_PLAN_LIMIT_S = 10.0  # twice the daemon's; what is not proven by then has another status


@click.command()
@click.option(
    "--limit",
    "limit_s",
    type=click.FloatRange(min=0.1, max=3600),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="For one node-level run; one that reaches it counts as at least that.",
)
@click.option(
    "--problems",
    type=click.IntRange(min=1, max=1000),
    default=10,
    show_default=True,
    help="For both models, of each size.",
)
@click.option(
    "--plans",
    type=click.IntRange(min=1, max=1000),
    default=20,
    show_default=True,
    help="Of the count model alone, of each kind and mode.",
)
@click.option("--quick", is_flag=True, help="Only the smallest sizes, few of each.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every single time.")
def bench_planner(limit_s: float, problems: int, plans: int, quick: bool, as_json: bool) -> None:
    """Measure how long plans take, on this machine.

    First the paper's node-level formulation and the product's count model on the same problems,
    then the count model alone: on a new problem each time (fresh), and from event to event, each
    plan starting from the one before (stream).

    \b
    Example:
      scripts/bench-planner --problems 5 --limit 10
    """
    sizes, kinds = (SIZES[:1], KINDS[:1]) if quick else (SIZES, KINDS)
    if quick:
        problems, plans = min(problems, 3), min(plans, 5)
    machine = this_machine()
    comparisons: list[Comparison] = []
    series: list[Series] = []
    steps = len(sizes) + 2 * len(kinds)
    progress = click.progressbar(length=steps, label="measuring", file=sys.stderr)
    with (
        progress as bar,
        Planner(time_limit_s=_PLAN_LIMIT_S) as planner,
        NodeLevel() as node_level,
    ):
        planner.warm_up()
        planner.plan(made(2, 4, 0))  # a daemon's child has solved before
        for size in sizes:
            comparisons.append(compare(size, problems, limit_s, planner, node_level))
            bar.update(1)
        for kind in kinds:
            series.append(fresh(kind, plans, planner))
            bar.update(1)
            series.append(stream(kind, plans, planner))
            bar.update(1)
    if as_json:
        click.echo(json.dumps(document(machine, comparisons, series), indent=2))
    else:
        click.echo(tables(machine, comparisons, series))
    if not all(one.agree for one in comparisons):
        raise click.ClickException("the two models contradict each other: one of them is wrong")
