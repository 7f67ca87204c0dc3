"""The command line of ``scripts/run bench-planner``: what is measured, and how long."""

from __future__ import annotations

import logging
import sys
from functools import partial
from itertools import product

import click

from bftrainer_slurm.planner.solver import Planner
from scripts.benchkit.command import Findings, bench_command, findings, number
from scripts.benchkit.machine import this_machine
from scripts.planner_bench import report
from scripts.planner_bench.instances import made, made_in_parts, made_with_classes, made_with_sizes
from scripts.planner_bench.measure import Kind, compare, fresh, node_level_planner, stream

SIZES = ((5, 16), (10, 16), (10, 32), (10, 64), (10, 128))  # trainers and nodes
# To measure another kind of problem, for example with classes of nodes, add an entry here.
KINDS = (
    Kind("10x64", partial(made, 10, 64), 0.01, 0.01),
    Kind("10x128", partial(made, 10, 128)),
    Kind("100x1,000", partial(made, 100, 1_000), 0.5, 0.1),
    Kind("100x1,000 smooth", partial(made, 100, 1_000, measured=False), 0.5, 0.1),
    Kind("100x1,000 sizes", partial(made_with_sizes, 100, 1_000), 0.5, 0.1),
    Kind("100x5,000", partial(made, 100, 5_000), 0.5, 0.1),
    Kind("100x5,000 smooth", partial(made, 100, 5_000, measured=False), 0.5, 0.1),
    Kind("100x10,000", partial(made, 100, 10_000), 0.5, 0.3),
    Kind("300x10,000", partial(made, 300, 10_000), 2.0, 0.5),
    Kind("300x10,000 smooth", partial(made, 300, 10_000, measured=False), 2.0, 0.5),
    Kind("10x40 parts", partial(made_in_parts, 10, 40), 0.1, 0.1),
    Kind("20x60 parts", partial(made_in_parts, 20, 60), 0.1, 0.1),
    Kind("100x1,000 parts", partial(made_in_parts, 100, 1_000), 0.3, 0.3),
    Kind("300x5,000 parts", partial(made_in_parts, 300, 5_000), 0.5, 0.5),
    Kind("300x10,000 8 classes", partial(made_with_classes, 300, 10_000), 1.5, 1.5),
)
_PLAN_LIMIT_S = 10.0  # twice the daemon's; a plan not proven by then has another status


@bench_command()
@number(
    "--limit",
    *(30.0, 0.1, 3600),
    "Seconds for one node-level run; one that reaches it counts as at least that.",
)
@number("--problems", 10, 1, 1000, "For both models, of each size.")
@number("--plans", 20, 1, 1000, "Of the count model alone, of each kind and mode.")
@click.option("--quick", is_flag=True, help="Only the smallest sizes, few of each.")
def main(limit: float, problems: int, plans: int, quick: bool) -> Findings:
    """Measure how long plans take, on this machine.

    First the paper's node-level formulation and the product's count model on the same problems,
    then the count model alone: on a new problem each time (fresh), and from event to event, each
    plan starting from the one before (stream).

    \b
    Example:
      scripts/run bench-planner --problems 5 --limit 10
    """
    sizes, kinds = (SIZES[:1], KINDS[:1]) if quick else (SIZES, KINDS)
    if quick:
        problems, plans = min(problems, 3), min(plans, 5)
    machine = this_machine("mip")
    logging.getLogger("bftrainer_slurm.planner").setLevel(logging.ERROR)  # the table has it all
    with (
        Planner(time_limit_s=_PLAN_LIMIT_S) as planner,
        node_level_planner(limit) as node_level,
        click.progressbar(length=len(sizes) + 2 * len(kinds), file=sys.stderr) as bar,
    ):
        planner.warm_up()
        planner.plan(made(2, 4, 0))  # as in a daemon, whose child has solved before
        comparisons, series = [], []
        for size in sizes:
            comparisons.append(compare(size, problems, limit, planner, node_level))
            bar.update(1)
        for kind, measure in product(kinds, (fresh, stream)):
            series.append(measure(kind, plans, planner))
            bar.update(1)
    agree = all(one.agree for one in comparisons)
    wrong = "" if agree else "the two models contradict each other: one of them is wrong"
    return findings(
        machine,
        report.side_by_side(comparisons),
        report.alone(series),
        targets=report.targets(comparisons, series),
        wrong=wrong,
        side_by_side=comparisons,
        ratios={one.size: one.ratio for one in comparisons},
        alone=series,
    )
